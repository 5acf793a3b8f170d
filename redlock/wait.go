package redlock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/google/uuid"
)

// wait is a waiting request.
type wait struct {
	*acquirer
	queue   *localQueue
	req     driver.Request
	arrived time.Time
	how     attemptOptions

	waited   driver.Waited
	answered bool // by a majority, at least once
	informed bool // OnWait was called
	slow     *retry.Backoff
	splits   int // split votes in a row
}

// run makes attempts until the request is granted or ctx ends. Exclusive requests of one process
// take turns.
func (w *wait) run(ctx context.Context) (driver.Grant, error) {
	if w.req.Mode == driver.Exclusive {
		if err := w.waitFirst(ctx); err != nil {
			return driver.Grant{}, err
		}
		defer w.queue.next()
	}
	caller := uuid.Must(uuid.NewV7()).String() // never fails
	w.how = attemptOptions{since: w.arrived, joins: true, caller: caller, inflight: make(inflight, len(w.set.nodes))}
	w.slow = retry.NewBackoff(30*time.Millisecond, time.Second)
	granted := false
	defer func() { // also if OnWait panics
		if !granted {
			w.leaveQueues()
		}
	}()
	g, err := w.acquireLoop(ctx)
	granted = err == nil
	return g, err
}

// waitFirst blocks until it is the request's turn in this process. The caller must then call
// queue.next.
func (w *wait) waitFirst(ctx context.Context) error {
	mine, position := w.queue.join()
	if mine == nil {
		return nil
	}
	first := false
	defer func() { // also if OnWait panics
		if !first {
			w.queue.withdraw(mine)
		}
	}()
	w.note(ctx)
	w.inform(position)
	select {
	case <-mine:
		first = true
		return nil
	case <-ctx.Done():
		// The request whose turn it is may have learnt more by now. Use a context that has not
		// ended: ctx would exclude it.
		w.note(context.Background())
		return w.waited.Ended(ctx, nil)
	case <-w.closed.Done():
		return unavailable(errClosed)
	}
}

// note records what the request whose turn it is has learnt. If that request has learnt nothing yet
// or has acquired the lock, it is in the way itself.
func (w *wait) note(ctx context.Context) {
	o := w.queue.lastOutcome()
	if o.err == nil && o.inWay == nil {
		return
	}
	o.note(ctx, &w.waited)
}

func (w *wait) acquireLoop(ctx context.Context) (driver.Grant, error) {
	begun := time.Now()
	news, stop := w.acquirer.news.subscribe(w.req.Name, w.how.caller)
	defer stop()
	// The first attempt does not join the queues: a node that has not executed a release yet would
	// put the request into its queue behind a lock that is already free.
	how := w.how
	how.joins = false
	for {
		o := w.proposer.try(ctx, w.req, how)
		w.answered = w.answered || o.major
		o.note(ctx, &w.waited)
		w.queue.note(ctx, &o)
		switch {
		case o.won:
			return o.grant, nil
		case ctx.Err() != nil:
			return driver.Grant{}, o.ended(ctx, &w.waited)
		// Once a majority has answered, the request waits through any failure, because it would
		// lose its place. Before that, the nodes may not exist at all.
		case o.final, o.err != nil && !w.answered && !o.later && time.Since(begun) > w.cfg.RetryTimeout:
			return driver.Grant{}, o.err
		}
		// Make the second attempt immediately: releases before the request was in the queues were
		// not published to it.
		if how.joins || o.err != nil {
			w.names.Add(nameindex.Noted{Name: w.req.Name, Life: waitLife})
			w.inform(0)
			w.sleep(ctx, w.nextPause(o), news)
		}
		how = w.how
	}
}

// inform calls OnWait, once.
func (w *wait) inform(position int) {
	if w.req.OnWait == nil || w.informed {
		return
	}
	w.informed = true
	held, trouble := w.waited.Last()
	w.req.OnWait(driver.WaitInfo{Position: position, Held: held, Trouble: trouble})
}

// nextPause returns how long to wait for news before the next attempt. News arrives in time unless
// a subscription is interrupted or the holder is another program.
func (w *wait) nextPause(o outcome) time.Duration {
	// After split votes, retry at different times and with growing pauses. A request that was
	// notified that another one is next has collided with that one, and waits for its news.
	if o.err == nil && o.split && (w.how.mine || !w.how.woken) {
		w.splits = min(w.splits+1, 5)
		return time.Millisecond + rand.N(4*time.Millisecond<<w.splits)
	}
	w.splits = 0
	d := w.slow.Next()
	// A holder without a PID is another program, whose release is not published.
	if first := w.set.leader(); first == nil || !first.subscribed.Load() || o.err != nil || o.inWay.PID == 0 {
		d = min(d, 100*time.Millisecond+rand.N(50*time.Millisecond))
	}
	if o.err == nil && o.next > 0 {
		d = min(d, o.next+time.Millisecond+rand.N(5*time.Millisecond))
	}
	return d
}

// sleep waits for d, or for news that this request is next. News that another one is next postpones
// the next attempt only by a little, because that one may be dead.
func (w *wait) sleep(ctx context.Context, d time.Duration, news <-chan string) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	w.how.woken, w.how.mine = false, false
	longest := time.Now().Add(250 * time.Millisecond)
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-w.closed.Done():
			return
		case first := <-news:
			w.how.woken = true
			w.how.mine = first == w.how.caller || first == redisfmt.Letter(w.req.Mode)
			w.slow.Reset()
			if first == everybody || first == w.how.caller || first == redisfmt.Letter(w.req.Mode) {
				return
			}
			timer.Reset(min(30*time.Millisecond+rand.N(20*time.Millisecond), time.Until(longest)))
		}
	}
}

// leaveQueues takes a failed request out of the nodes' queues. It returns when a majority has done
// so, or after the time limit.
func (w *wait) leaveQueues() {
	left, limit := w.proposer.depart(w.req.Name, w.req.TTL, w.how, w.set.nodes), time.After(w.cfg.limit(w.req.TTL))
	for range w.set.need {
		select {
		case <-left:
		case <-limit:
			return
		}
	}
}

// localQueue is the queue of one process's requests for a name. Only the first of them competes
// with other processes; otherwise they would split the votes.
type localQueue struct {
	all *localQueues

	// Guarded by localQueues.mu.
	users int // requests that use it
	busy  bool
	queue []chan struct{}
	last  outcome // of the request whose turn it is, or was last
}

// localQueues are the local queues of all names that this process acquires.
type localQueues struct {
	mu     sync.Mutex // guards byName, and what the queues say
	byName map[string]*localQueue
}

// enter returns the queue of a name. The caller must call leave.
func (qs *localQueues) enter(name string) *localQueue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t := qs.byName[name]
	if t == nil {
		t = &localQueue{all: qs}
		qs.byName[name] = t
	}
	t.users++
	return t
}

func (qs *localQueues) leave(name string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t := qs.byName[name]
	if t.users--; t.users == 0 {
		delete(qs.byName, name)
	}
}

// has reports whether this process is acquiring a name.
func (qs *localQueues) has(name string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.byName[name] != nil
}

// note records the outcome of the request whose turn it is, for the requests behind it.
func (q *localQueue) note(ctx context.Context, o *outcome) {
	if ctx.Err() == nil {
		q.all.mu.Lock()
		q.last = *o
		q.all.mu.Unlock()
	}
}

// lastOutcome returns the last recorded outcome.
func (q *localQueue) lastOutcome() outcome {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.last
}

// join returns a channel that is closed when it is the caller's turn, and the caller's position.
// The channel is nil if it is the caller's turn now. The caller must call next after its turn.
func (q *localQueue) join() (mine chan struct{}, position int) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if !q.busy {
		q.busy = true
		return nil, 1
	}
	mine = make(chan struct{})
	q.queue = append(q.queue, mine)
	return mine, len(q.queue) + 1
}

// next passes the turn on.
func (q *localQueue) next() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if len(q.queue) == 0 {
		q.busy = false
		return
	}
	close(q.queue[0])
	q.queue = q.queue[1:]
}

// withdraw leaves the queue, or passes on a turn that was given at the same moment.
func (q *localQueue) withdraw(mine chan struct{}) {
	q.all.mu.Lock()
	i := slices.Index(q.queue, mine)
	if i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
	}
	q.all.mu.Unlock()
	if i < 0 {
		q.next()
	}
}
