package redislock

import (
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// rejoinSize is how many requests one script call puts back into the queue.
const rejoinSize = 200

// join adds a queued request to its group. Its grant may already have arrived. The caller has
// called tasks.Enter, so Close waits for it.
func (q *waitQueue) join(w *waiter, a answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.groups[w.req.Name]
	if g == nil {
		g = &group{name: w.req.Name, lock: w.lock, poke: make(chan struct{}, 1)}
		q.groups[w.req.Name] = g
		q.client.tasks.Spawn(func() { q.pollLoop(g) }) // ends when the group has no waiters, or with Close
	}
	g.waiters = append(g.waiters, w)
	w.wake = make(chan struct{}, 1)
	w.queued = w.msg == nil
	g.advance(pause(a.position, a.blocked))
	q.toucher.start()
}

// pollLoop polls the lock whenever something may have changed. Polling also tells the server that
// this client is alive. If the server answers but refuses the polls for RetryTimeout, the waits
// end.
func (q *waitQueue) pollLoop(g *group) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := newBackoff()
	var refused time.Time // since when; zero if it is not refusing
	var noted time.Time   // when the name was last entered in the index
	for {
		left, ok := q.remaining(g)
		if !ok {
			return
		}
		if left > 0 {
			timer.Reset(left)
			select {
			case <-timer.C:
			case <-g.poke:
			case <-q.client.closed.Done():
				return
			}
			continue
		}
		if time.Since(noted) > waitLife/3 {
			q.index.Add(nameindex.Noted{Name: g.name, Life: waitLife})
			noted = time.Now()
		}
		err := q.touchGroup(g)
		if err != nil {
			q.trouble(g, err)
		}
		// Wait as long as the server is unreachable or its error is transient. If it answers and
		// refuses, give up after RetryTimeout.
		switch {
		case err == nil:
			failed.Reset()
			refused = time.Time{}
			continue
		case passing(err):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > q.client.cfg.RetryTimeout:
			q.refuse(g, err)
		}
		q.mu.Lock()
		g.due = time.Now().Add(failed.Next())
		q.mu.Unlock()
	}
}

// trouble reports to the waiters of a group that the server could not be polled.
func (q *waitQueue) trouble(g *group, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g.trouble(err)
}

// trouble is the variant for a caller that holds waitQueue.mu.
func (g *group) trouble(err error) {
	for _, w := range g.waiters {
		if w.queued {
			w.state, w.trouble = &queueState{err: unavailable(err)}, true
			w.notify()
		}
	}
}

// refuse ends the waits of a group, except those that are being granted.
func (q *waitQueue) refuse(g *group, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range g.waiters {
		if w.queued {
			w.tell(grantMsg{err: unavailable(err)})
		}
	}
}

// remaining returns the time until the next poll. ok is false if the group has no waiters.
func (q *waitQueue) remaining(g *group) (left time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(g.waiters) == 0 || q.client.closed.Err() != nil {
		delete(q.groups, g.name)
		return 0, false
	}
	return time.Until(g.due), true
}

// touchGroup polls the server once, or several times to put many requests back. If one of these
// polls fails, all requests are put back again. That is safe, because each keeps its ticket.
func (q *waitQueue) touchGroup(g *group) error {
	queued, again := q.snapshotQueued(g)
	if len(queued) == 0 {
		return nil
	}
	first := queued[0]
	args := []string{q.client.id, "", "", first.entry()}
	if !again {
		return q.poll(g, first, args)
	}
	for part := range slices.Chunk(queued, rejoinSize) {
		pairs := slices.Clone(args)
		for _, w := range part {
			pairs = append(pairs, w.ticket, w.entry())
		}
		if err := q.poll(g, first, pairs); err != nil {
			q.mu.Lock()
			g.lost = true
			q.mu.Unlock()
			return err
		}
	}
	return nil
}

// snapshotQueued returns the queued requests, the oldest first, and whether the caller must put
// them back.
func (q *waitQueue) snapshotQueued(g *group) (queued []*waiter, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range g.waiters {
		if w.queued {
			queued = append(queued, w)
		}
	}
	g.due = time.Now().Add(unpolled) // before the request: an advance that comes meanwhile counts
	if len(queued) == 0 {            // all are being granted
		return nil, false
	}
	slices.SortFunc(queued, compareTickets)
	again, g.lost = g.lost, false
	return queued, again
}

// compareTickets compares tickets, which are numbers without leading zeros.
func compareTickets(a, b *waiter) int {
	if len(a.ticket) != len(b.ticket) {
		return len(a.ticket) - len(b.ticket)
	}
	return strings.Compare(a.ticket, b.ticket)
}

// poll runs the touch script on behalf of the oldest request and acts on its answer.
func (q *waitQueue) poll(g *group, first *waiter, args []string) error {
	limit := attemptLimit(first.req.TTL)
	q.client.askTime(q.client.closed)
	args[1], _ = q.client.until(q.client.closed, limit)
	sent := time.Now()
	args[2] = q.client.own.stamp(sent)
	text, err := q.client.eval(redisconn.WithDeadline(q.client.closed, limit), q.client.newCall(touchScript, g.lock, args...))
	if err != nil {
		return err
	}
	if now, ok := strings.CutPrefix(text, "late "); ok {
		q.client.clock.note(clockSample{sent: sent, server: redisfmt.Number(now)}, true)
		return errLate
	}
	in := redisfmt.Words{Rest: text}
	if rest, ok := strings.CutPrefix(text, "mine "); ok {
		in.Rest = rest
		q.client.clock.note(clockSample{sent: sent, server: in.Int()}, false)
		q.found(g, in.Next(), in.Int(), len(args) > 4)
		return nil
	}
	now, known, position := in.Int(), in.Int() == 1, int(in.Int())
	o := readBlocked(&in)
	if in.Bad {
		return malformed(text)
	}
	q.client.clock.note(clockSample{sent: sent, server: now}, false)
	q.report(g, first, position, o, known)
	return nil
}

// found delivers a grant whose message was lost: the server counts subscribers, not readers, and
// the client that released the lock may lack the right to publish. The next poll follows at
// once; again says that this one was putting requests back and has not finished.
func (q *waitQueue) found(g *group, owner string, token int64, again bool) {
	q.deliver(owner, grantMsg{token: token})
	q.mu.Lock()
	defer q.mu.Unlock()
	g.due, g.lost = time.Now(), g.lost || again
}

// report tells the oldest request what is in the way, and the requests that saw trouble that it is
// over. If the server has lost the oldest request, all requests are put back.
func (q *waitQueue) report(g *group, first *waiter, position int, o blockedInfo, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g.advance(pause(position, o))
	for _, w := range g.waiters {
		if w.queued && (w == first || w.trouble) {
			w.state, w.trouble = &queueState{blocked: o}, false
			w.notify()
		}
	}
	if !known && first.queued { // unless it was granted during the poll
		g.lost = true
		g.advance(0)
		if time.Since(g.missing) < 3*pollEvery { // not only because this process was slow
			q.resubscribeIfStale()
		}
		g.missing = time.Now()
	}
}
