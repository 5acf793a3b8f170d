package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// listener keeps the client subscribed to its own channel, which carries messages for the queue.
type listener struct {
	client *client
	queue  *waitQueue
	server *serverCheck

	mu      sync.Mutex // guards all below
	started bool
	up      chan struct{} // closed while subscribed
	err     error         // why there is no subscription
}

// start begins the subscription, once, and reports whether the client is subscribed.
func (l *listener) start() bool {
	l.mu.Lock()
	if !l.started {
		l.started = true
		l.client.tasks.Go(l.subscribe) // ends with Close
	}
	l.mu.Unlock()
	return l.ready()
}

// subscribe keeps the subscription up. Messages published while it was down are lost, so after each
// reconnection all waiters are put back into the queue.
func (l *listener) subscribe() {
	pause := newBackoff()
	for again := false; l.client.closed.Err() == nil; again = true {
		ctx, end := context.WithCancelCause(l.client.closed)
		err := l.client.conn.Subscribe(ctx, l.client.base()+l.client.id, func() {
			pause.Reset()
			l.set(nil)
			if again {
				l.server.invalidate()
			}
			l.queue.rejoin(end)
		}, l.queue.onMessage)
		if errors.Is(context.Cause(ctx), errNotSubscribed) {
			err = errNotSubscribed
		}
		end(nil)
		l.set(orElse(err, errEnded))
		l.queue.unreachable(orElse(err, errEnded))
		pause.Wait(l.client.closed)
	}
}

// rejoin makes all groups put their requests back. The server may have skipped them, because a
// client that does not receive its grants is skipped, or may have lost them. end cancels the new
// subscription.
func (q *waitQueue) rejoin(end context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subscribed, q.resubscribe = time.Now(), end
	for _, g := range q.groups {
		g.lost = true
		g.advance(0)
	}
}

// resubscribeIfStale handles a server that does not know a request that had been queued. The server
// may have skipped it because nobody was subscribed there: after a failover the subscription can
// stay connected to the old master while calls go to the new one. So the client resubscribes,
// unless the subscription is recent. The caller holds mu.
func (q *waitQueue) resubscribeIfStale() {
	if q.resubscribe != nil && time.Since(q.subscribed) > resubscribeAfter {
		q.resubscribe(errNotSubscribed)
	}
}

// resubscribeAfter is the minimum age of a subscription that resubscribeIfStale replaces.
const resubscribeAfter = time.Second

// unreachable reports to all waiters that the server cannot be reached.
func (q *waitQueue) unreachable(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.groups {
		g.trouble(err)
	}
}

// set records that the client is subscribed, or why it is not. up is closed while subscribed and
// replaced when the subscription ends.
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

// state returns what set recorded last.
func (l *listener) state() (up chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.err
}

// ready reports whether the client is subscribed.
func (l *listener) ready() bool {
	up, _ := l.state()
	select {
	case <-up:
		return true
	default:
		return false
	}
}

// subscribed blocks until the client is subscribed or ctx ends, which has a deadline. It checks
// regularly why there is no subscription: an error that no retry mends, such as a missing
// permission, is returned immediately.
func (l *listener) subscribed(ctx context.Context) error {
	up, _ := l.state()
	ctx, cancel := redisconn.Timed(ctx)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := l.state()
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			return unavailable(fmt.Errorf("subscribing: %w", orElse(err, l.client.unreached(ctx.Err()))))
		case <-l.client.closed.Done():
			return unavailable(errClosed)
		case <-tick.C:
			if err != nil && !passing(err) {
				return unavailable(fmt.Errorf("subscribing: %w", err))
			}
		}
	}
}

var (
	errEnded         = errors.New("the subscription ended")
	errNotSubscribed = errors.New("the server has lost a queued request, or has no subscription of this client")
)

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// onMessage handles one message. It runs on the subscription's goroutine and does not block.
func (q *waitQueue) onMessage(text string) {
	in := redisfmt.Words{Rest: text}
	switch in.Next() {
	case "grant":
		owner := in.Next()
		n := grantMsg{token: in.Int(), floor: in.Int(), sent: q.client.own.at(in.Int())}
		// If no request takes the grant, release it, or the lock stays blocked until the grant
		// expires. This happens when a request is withdrawn while it is being granted, or is
		// granted twice.
		if !in.Bad && !q.deliver(owner, n) {
			q.client.giveBack(q.client.releaseCall(in.Rest, owner, n.token, 0))
		}
	case "refuse":
		owner, limit := in.Next(), in.Next()
		if !in.Bad {
			q.deliver(owner, grantMsg{err: fmt.Errorf("%w: the name is in use with a limit of %s; all requests for a shared name must have the same limit", driver.ErrInvalid, limit)})
		}
	case "advance":
		if name, ok := q.client.nameOf(in.Rest); ok {
			q.pollNow(name)
		}
	case "lost":
		owner, token := in.Next(), in.Int()
		if !in.Bad {
			q.reportBroken(owner, token, in.Rest)
		}
	}
}

// pollNow continues what the script of another client has left to do.
func (q *waitQueue) pollNow(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.groups[name]; g != nil {
		g.advance(0)
	}
}

// reportBroken tells a holder that its lock was broken. The message may concern an earlier hold,
// which the token shows, or a grant that has not been taken yet. The hold is forgotten first, so
// that the callback runs once. The callback runs without the mutex, since it may call the engine.
func (q *waitQueue) reportBroken(owner string, token int64, reason string) {
	q.mu.Lock()
	h, ok := q.holds[owner]
	if ok = ok && (h.token == token || h.token == 0); ok {
		q.erase(owner)
	} else if w := q.waiters[owner]; w != nil {
		w.broken, w.reason = token, reason
	}
	q.mu.Unlock()
	if ok && h.lost != nil {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, h.name, reason))
	}
}
