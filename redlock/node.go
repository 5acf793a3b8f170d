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

// node is one master. It is left out while it does not answer, and its orphans are released when it
// answers again.
type node struct {
	*client
	set   *nodeSet
	holds *holdings
	index int
	conn  redisconn.Conn
	label string // its name or number, for error messages

	clock   nodeClock
	orphans orphans

	suitable    atomic.Bool            // it was found suitable, and nothing has changed since
	wasSuitable atomic.Bool            // it has been found suitable at least once
	who         atomic.Uint64          // id of the server that answered last; 0 means unknown
	out         atomic.Pointer[outage] // why it is left out; nil while it is in use
	subscribed  atomic.Bool            // subscribed to its channel
	silent      atomic.Bool            // its last calls were not answered

	flights atomic.Int32 // calls in flight
	fresh   atomic.Int32 // those of them on a new connection

	mu      sync.Mutex // guards reviver, and that it changes together with out
	reviver bool       // a goroutine waits until the node answers again
}

// outage is why a node is left out. Its calls fail immediately until it is back.
type outage struct {
	cause      error // what its calls return
	unsuitable bool  // it is the wrong kind of server, and has never been suitable
}

// maxFlights bounds the calls that accumulate on a slow node.
const maxFlights = 10_000

var errBusy = errors.New("too many unanswered requests")

// ask sends calls to the node. If a call fails without an error of the server, it is unknown
// whether it will run. The node is then left out until it answers, and the next calls use a new
// connection.
func (n *node) ask(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	if o := n.out.Load(); o != nil {
		return redisconn.Failures(len(calls), notAsked{o.cause})
	}
	if !n.suitable.Load() {
		if err := n.probe(ctx); err != nil {
			return redisconn.Failures(len(calls), notAsked{err})
		}
	}
	defer n.flights.Add(-1)
	if n.flights.Add(1) > maxFlights {
		return redisconn.Failures(len(calls), notAsked{errBusy})
	}
	ctx, done := n.on(ctx)
	defer done()
	replies := n.conn.Eval(ctx, calls)
	silent := false
	for _, r := range replies {
		if silent = unknown(r.Err); silent {
			n.leaveOut(fmt.Errorf("left out until it answers: %w", r.Err))
			break
		}
	}
	n.silent.Store(silent && !redisconn.IsFresh(ctx)) // after one on a new connection, the pool is tried again
	return replies
}

// maxFresh bounds the new connections to a node that is back, to which all requests would dial at once.
// The other calls use the pool.
const maxFresh = 16

// on returns ctx for calls to the node: on a new connection after calls that were not answered. done
// must be called after the calls.
func (n *node) on(ctx context.Context) (_ context.Context, done func()) {
	if !n.silent.Load() {
		return ctx, func() {}
	}
	done = func() { n.fresh.Add(-1) }
	if n.fresh.Add(1) <= maxFresh {
		ctx = redisconn.Fresh(ctx)
	}
	return ctx, done
}

// notAfter returns the node's time until which a request with the time limit d may be served. It
// reads the node's clock if the last sample is old. Its error is that of a request that was not
// sent.
func (n *node) notAfter(ctx context.Context, d time.Duration) (int64, error) {
	if n.out.Load() == nil && n.suitable.Load() && !n.clock.fresh() {
		on, done := n.on(ctx)
		err := n.readClock(on)
		done()
		if err != nil {
			n.leaveOut(fmt.Errorf("left out until it answers: %w", err))
			return 0, notAsked{err}
		}
	}
	return n.clock.by(d), nil
}

// leaveOut makes all calls of the node fail immediately until it is back.
func (n *node) leaveOut(cause error) {
	_, bad := errors.AsType[badNodeError](cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(&outage{cause, bad && !n.wasSuitable.Load()})
	n.wake()
}

// wake starts the goroutine that waits for the node, unless it runs. The caller holds mu.
func (n *node) wake() {
	if !n.reviver {
		n.reviver = true
		n.tasks.Spawn(n.revive) // ends with Close, or when the node is back
	}
}

// revive waits until the node answers, releases its orphans, and lets it vote again.
func (n *node) revive() {
	for pause := retry.NewBackoff(20*time.Millisecond, time.Second); n.closed.Err() == nil; pause.Wait(n.closed) {
		ctx, cancel := context.WithTimeout(redisconn.Fresh(n.closed), reviveLimit)
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

// checkAlive checks whether the node answers and, if that is unknown, whether it is suitable.
func (n *node) checkAlive(ctx context.Context) error {
	if !n.suitable.Load() {
		return n.probe(ctx)
	}
	replies, err := n.conn.Each(ctx, "PING")
	if err == nil && len(replies) > 0 && unknown(replies[0].Err) {
		err = replies[0].Err
	}
	return err
}

// releaseOrphans releases the orphans of the node. It retries what the server refuses temporarily.
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
			if r.Err != nil && !redisconn.Denied(r.Err) { // includes NOSCRIPT after a timeout
				err = r.Err
				continue
			}
			n.orphans.remove(list[i].owner)
		}
	}
	return err
}

// back lets the node vote again, unless an orphan was added meanwhile. noteOrphan wakes the node
// under mu after it has added one, so an orphan that is not seen here starts another revive.
func (n *node) back() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(nil)
	n.reviver = len(n.orphans.batch(1, n.holds.has)) > 0
	return !n.reviver
}

// free releases the lock on the node in the background, without a message: waiters poll, and waking
// all of them would make them collide. Until then the lock is an orphan, so that the next attempt
// does not take it for another holder's.
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

// noteOrphan records an orphan, to be released as soon as the node answers. The release is
// published, because the orphan may be all that waiters wait for.
func (n *node) noteOrphan(d releaseCall) {
	d.publish = "2"
	n.orphans.add(d)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake()
}
