package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// listener is the client's subscription to its own channel, by which the queue hears.
type listener struct {
	*client
	queue   *waitQueue
	fitness *fitness

	mu      sync.Mutex // guards all below
	started bool
	up      chan struct{} // closed while the subscription stands
	err     error         // why it does not
}

// start begins the subscription if there is none yet, and reports whether it stands.
func (l *listener) start() bool {
	l.mu.Lock()
	if !l.started {
		l.started = true
		l.tasks.Go(l.subscribe) // ends with Close
	}
	l.mu.Unlock()
	return l.ready()
}

// subscribe keeps the subscription up. What was published while it was down is
// lost, so each time all waiters take their places again.
func (l *listener) subscribe() {
	pause := newBackoff()
	for again := false; l.closed.Err() == nil; again = true {
		ctx, end := context.WithCancelCause(l.closed)
		err := l.conn.Subscribe(ctx, l.base()+l.id, func() {
			pause.Reset()
			l.set(nil)
			if again {
				l.fitness.forget()
			}
			l.queue.rejoin(end)
		}, l.queue.onMessage)
		if errors.Is(context.Cause(ctx), errUnheard) {
			err = errUnheard
		}
		end(nil)
		l.set(orElse(err, errEnded))
		l.queue.unreachable(orElse(err, errEnded))
		pause.Wait(l.closed)
	}
}

// rejoin puts all requests back: the server may have passed over them, since a client that
// did not hear its grant is passed over, or it may have forgotten them. The subscription
// that stands from now on ends with end.
func (q *waitQueue) rejoin(end context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subscribed, q.resubscribe = time.Now(), end
	for _, g := range q.groups {
		g.lost = true
		g.sample = clockSample{} // another server's clock may answer next
		for _, w := range g.waiters {
			w.sample = clockSample{}
		}
		g.advance(0)
	}
}

// unheard is for a server that does not know of a request that it has queued. It may have
// passed over it because nobody listens there: a connection stays with a server that is
// the master no more, when calls go to another one by now. So the client subscribes anew,
// if the subscription is not a new one. The caller holds mu.
func (q *waitQueue) unheard() {
	if q.resubscribe != nil && time.Since(q.subscribed) > resubscribeAfter {
		q.resubscribe(errUnheard)
	}
}

// resubscribeAfter is how old a subscription is at least that is given up for a new one.
const resubscribeAfter = time.Second

// unreachable tells all waiters that nothing is heard of the server.
func (q *waitQueue) unreachable(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.groups {
		g.trouble(err)
	}
}

// set notes that the subscription stands, or why it does not. Whoever waits for it holds
// on to up: it is closed when the subscription stands, and made anew when that has ended.
func (l *listener) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
		if err != nil {
			l.up = make(chan struct{})
		}
	default:
		if err == nil {
			close(l.up)
		}
	}
	l.err = err
}

// state returns what set has noted last.
func (l *listener) state() (up chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.err
}

// ready reports whether the subscription stands.
func (l *listener) ready() bool {
	up, _ := l.state()
	select {
	case <-up:
		return true
	default:
		return false
	}
}

// subscribed blocks until the subscription stands, for no longer than RetryTimeout. It
// looks now and then why there is none: what another try does not mend, such as a right
// that is missing, is told at once.
func (l *listener) subscribed(ctx context.Context) error {
	up, _ := l.state()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RetryTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := l.state()
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			return unavailable(fmt.Errorf("subscribing: %w", orElse(err, l.unreached(ctx.Err()))))
		case <-l.closed.Done():
			return unavailable(errClosed)
		case <-tick.C:
			if err != nil && !passing(err) {
				return unavailable(fmt.Errorf("subscribing: %w", err))
			}
		}
	}
}

var (
	errEnded   = errors.New("the subscription ended")
	errUnheard = errors.New("the server has forgotten a request, or knows of no subscription")
)

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// onMessage takes one message. It runs on the subscription's goroutine and does not
// block.
func (q *waitQueue) onMessage(text string) {
	in := redisfmt.Words{Rest: text}
	switch in.Next() {
	case "grant":
		owner := in.Next()
		n := grantMsg{token: in.Int(), floor: in.Int(), at: in.Int(), life: in.Millis()}
		in.Next() // the mode
		// Nobody waits for it and nobody has it: the request was given up as it was granted,
		// or was granted twice. The lock would be nobody's until the grant is over.
		if !in.Bad && !q.deliver(owner, n) {
			q.giveBack(q.releaseCall(in.Rest, owner, n.token, 0))
		}
	case "refuse":
		owner, limit := in.Next(), in.Next()
		if !in.Bad {
			q.deliver(owner, grantMsg{err: fmt.Errorf("%w: the name is in use with a limit of %s; all who share a name must ask for the same limit", driver.ErrInvalid, limit)})
		}
	case "advance":
		after := in.Millis()
		if name, ok := q.nameOf(in.Rest); ok && !in.Bad {
			q.schedulePoll(name, after)
		}
	case "lost":
		owner, token := in.Next(), in.Int()
		if !in.Bad {
			q.reportBroken(owner, token, in.Rest)
		}
	}
}

// schedulePoll is asked for by a client that granted the lock to another: it is in
// good hands until then. A request that stands in the queue already, but has not
// read that it does, keeps it in mind.
func (q *waitQueue) schedulePoll(name string, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	after = max(after, 0)
	if g := q.groups[name]; g != nil {
		g.postpone(after + pollJitter(g.shortest()))
		return
	}
	for _, w := range q.waiters {
		if w.req.Name == name {
			w.pollAt = time.Now().Add(after + pollJitter(w.req.TTL))
		}
	}
}

// postpone makes the next poll happen after so long, earlier if the server might
// take us for dead meanwhile.
func (g *group) postpone(after time.Duration) {
	g.due = time.Now().Add(after)
	if g.by.Before(g.due) {
		g.due = g.by
	}
	g.nudge()
}

// reportBroken tells a holder that its lock was broken. The message may be of an earlier
// hold, which the token tells, or of a grant that has not been taken yet. The callback runs
// without the mutex, since it may ask the engine something, and with the hold forgotten, so
// that it runs once.
func (q *waitQueue) reportBroken(owner string, token int64, reason string) {
	q.mu.Lock()
	h, ok := q.holds[owner]
	if ok = ok && (h.token == token || h.token == 0); ok {
		delete(q.holds, owner)
		delete(q.late, owner)
	} else if w := q.waiters[owner]; w != nil {
		w.broken, w.reason = token, reason
	}
	q.mu.Unlock()
	if ok && h.lost != nil {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
	}
}
