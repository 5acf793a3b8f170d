package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/retry"
)

// node is one master: it is asked, left out while it does not answer, and given its
// orphans back when it does.
type node struct {
	*client
	set   *nodeSet
	holds *holdings
	index int
	conn  redisconn.Conn
	label string // its name or number, for messages

	clock   nodeClock
	orphans orphans

	fit  atomic.Bool            // it was found to be what redlock needs
	knew atomic.Bool            // it was once
	who  atomic.Uint64          // which server answered last; 0 means unknown
	out  atomic.Pointer[outage] // why it is left out; nil while it is asked
	ear  atomic.Bool            // the subscription stands

	flights atomic.Int32 // requests under way

	mu      sync.Mutex // guards reviver, and that out is set or cleared together with it
	reviver bool       // a goroutine waits for the node's return
}

// outage is why a node is left out: its requests fail at once, until it is back.
type outage struct {
	cause error
	unfit bool // it is the wrong kind of server, and was never another
}

// maxFlights bounds what piles up before a node that is slow.
const maxFlights = 10_000

var errBusy = errors.New("too many requests are unanswered")

// ask makes calls of the node. Errors other than the server's own words mean that
// nobody knows whether it will run them; it is left out then until it answers.
func (n *node) ask(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	if o := n.out.Load(); o != nil {
		return redisconn.Failures(len(calls), notAsked{o.cause})
	}
	if !n.fit.Load() {
		if err := n.probe(ctx); err != nil {
			return redisconn.Failures(len(calls), notAsked{err})
		}
	}
	defer n.flights.Add(-1)
	if n.flights.Add(1) > maxFlights {
		return redisconn.Failures(len(calls), notAsked{errBusy})
	}
	replies := n.conn.Eval(ctx, calls)
	for _, r := range replies {
		if unknown(r.Err) {
			n.leaveOut(fmt.Errorf("left out until it answers: %w", r.Err))
			break
		}
	}
	return replies
}

// notAfter returns until when, by the node's clock, a request is of use that is of use for
// d. If the clock was not seen lately it asks for it. What it returns as an error is that
// of a request that was not sent.
func (n *node) notAfter(ctx context.Context, d time.Duration) (int64, error) {
	if n.out.Load() == nil && n.fit.Load() && !n.clock.fresh() {
		if err := n.readClock(ctx); err != nil {
			n.leaveOut(fmt.Errorf("left out until it answers: %w", err))
			return 0, notAsked{err}
		}
	}
	return n.clock.by(d), nil
}

// leaveOut makes requests of the node fail at once, until it has come back.
func (n *node) leaveOut(cause error) {
	_, unfit := errors.AsType[badNodeError](cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(&outage{cause, unfit && !n.knew.Load()})
	n.wake()
}

// wake begins to look whether the node answers, unless somebody does. The caller
// holds mu.
func (n *node) wake() {
	if !n.reviver {
		n.reviver = true
		n.tasks.Spawn(n.revive) // ends with Close, or when the node is back
	}
}

// revive waits until the node answers, gives back what it may have granted
// meanwhile, and lets it vote again.
func (n *node) revive() {
	for pause := retry.NewBackoff(20*time.Millisecond, time.Second); n.closed.Err() == nil; pause.Wait(n.closed) {
		ctx, cancel := context.WithTimeout(n.closed, reviveLimit)
		err := n.checkAlive(ctx)
		if err == nil {
			err = n.releaseOrphans(ctx)
		}
		cancel()
		if err == nil && n.back() {
			return
		}
		if unknown(err) || n.out.Load() != nil {
			n.leaveOut(err)
		}
	}
}

// checkAlive asks the node for any sign of life, and what it is if that is unknown.
func (n *node) checkAlive(ctx context.Context) error {
	if !n.fit.Load() {
		return n.probe(ctx)
	}
	replies, err := n.conn.Each(ctx, "PING")
	if err == nil && len(replies) > 0 && unknown(replies[0].Err) {
		err = replies[0].Err
	}
	return err
}

// releaseOrphans releases what nobody has. What the server refuses for now is tried again.
func (n *node) releaseOrphans(ctx context.Context) (err error) {
	for err == nil {
		list := n.orphans.batch(500, n.holds.has)
		if len(list) == 0 {
			return nil
		}
		calls := make([]redisconn.Call, len(list))
		for i, d := range list {
			calls[i] = d.call(n.client)
		}
		for i, r := range n.conn.Eval(ctx, calls) {
			if r.Err != nil && !redisconn.Denied(r.Err) { // NOSCRIPT after a deadline, too
				err = r.Err
				continue
			}
			n.orphans.remove(list[i].owner)
		}
	}
	return err
}

// back lets the node vote again, unless another orphan has come meanwhile. Whoever adds
// one wakes the node after that, and needs mu for it: an orphan that is not seen here
// begins another revival.
func (n *node) back() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(nil)
	n.reviver = len(n.orphans.batch(1, n.holds.has)) > 0
	return !n.reviver
}

// free gives the node's lock back in the background, without telling anybody:
// who waits looks again by itself, and telling all would make them all collide. It
// is an orphan until then, or the next attempt would take it for somebody's lock.
func (n *node) free(d releaseCall) {
	d.publish = "0"
	n.orphans.add(d)
	n.tasks.Spawn(func() { // ends with callLimit
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		if n.release(ctx, d).Err == nil {
			n.orphans.remove(d.owner)
		}
	})
}

// release ends an acquisition on the node, now or when the node is back.
func (n *node) release(ctx context.Context, d releaseCall) redisconn.Reply {
	r := n.ask(ctx, d.call(n.client))[0]
	if r.Err != nil {
		n.noteOrphan(d)
	}
	return r
}

// noteOrphan notes an orphan, and has it released as soon as the node answers. The
// release tells who waits: they may have waited for nobody all the time.
func (n *node) noteOrphan(d releaseCall) {
	d.publish = "2"
	n.orphans.add(d)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake()
}
