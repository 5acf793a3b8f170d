package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/words"
)

// listen subscribes to every node, once. A node that cannot be heard is tried
// again with backoff; waiters look by themselves meanwhile.
func (e *Engine) listen() {
	e.mu.Lock()
	first := !e.listened
	e.listened = true
	e.mu.Unlock()
	if !first {
		return
	}
	for _, n := range e.nodes {
		e.tasks.Go(n.listen) // ends with Close
	}
}

func (n *node) listen() {
	e := n.engine
	pause := retry.NewBackoff(10*time.Millisecond, time.Second)
	ready := func() {
		pause.Reset()
		n.ear.Store(true)
		if e.leader() == n {
			e.queues.notifyAll()
		}
	}
	for e.closed.Err() == nil {
		_ = n.conn.Subscribe(e.closed, e.cfg.channel(), ready, n.onMessage)
		n.ear.Store(false)
		pause.Wait(e.closed)
	}
}

// onMessage takes one message of the node. Two nodes tell of a release: who goes first
// is what the leader says, and the other is heard lest that message was missed.
func (n *node) onMessage(text string) {
	e := n.engine
	w := words.Words{Rest: text}
	switch w.Next() {
	case "released":
		first := w.Next()
		if e.leader() != n {
			first = somebody
		}
		if name, ok := e.nameOf(w.Rest); ok {
			e.queues.notify(name, first)
		}
	case "lost":
		if owner := w.Next(); !w.Bad && e.holds.has(owner) {
			e.tasks.Go(func() { e.verify(owner, w.Rest) }) // ends with the limit of a request
		}
	}
}

// verify finds out whether a lock that one node was told to break still stands
// on a majority, and tells its holder if it does not.
func (e *Engine) verify(owner, reason string) {
	h := e.holds.get(owner)
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.closed, callLimit)
	defer cancel()
	if err := e.renew(ctx, []driver.Lease{h.lease})[0]; errors.Is(err, driver.ErrNotHeld) {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.lease.Name, reason))
	}
}
