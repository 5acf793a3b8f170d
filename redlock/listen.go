package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// listener hears what the nodes tell: what becomes free, and what was broken.
type listener struct {
	*client
	set     *nodeSet
	holds   *holdings
	news    *news
	renewer *renewer
	once    sync.Once // until then nothing is heard
}

// start subscribes to every node, once.
func (l *listener) start() {
	l.once.Do(func() {
		for _, n := range l.set.nodes {
			l.tasks.Spawn(func() { l.follow(n) }) // ends with Close
		}
	})
}

// follow keeps a subscription to a node. A node that cannot be heard is tried again with
// backoff; waiters look by themselves meanwhile, and once when it is heard again, since
// a message may have been missed.
func (l *listener) follow(n *node) {
	pause := retry.NewBackoff(10*time.Millisecond, time.Second)
	ready := func() {
		pause.Reset()
		n.ear.Store(true)
		if l.set.leader() == n {
			l.news.notify("", everybody)
		}
	}
	for l.closed.Err() == nil {
		_ = n.conn.Subscribe(l.closed, l.cfg.channel(), ready, func(text string) { l.onMessage(n, text) })
		n.ear.Store(false)
		pause.Wait(l.closed)
	}
}

// onMessage takes one message of a node. Two nodes tell of a release: who goes first
// is what the leader says, and the other is heard lest that message was missed.
func (l *listener) onMessage(n *node, text string) {
	w := redisfmt.Words{Rest: text}
	switch w.Next() {
	case "released":
		first := w.Next()
		if l.set.leader() != n {
			first = somebody
		}
		if name, ok := l.nameOf(w.Rest); ok {
			l.news.notify(name, first)
		}
	case "lost":
		if owner := w.Next(); !w.Bad && l.holds.has(owner) {
			l.tasks.Spawn(func() { l.verify(owner, w.Rest) }) // ends with the limit of a request
		}
	}
}

// verify finds out whether a lock that one node was told to break still stands
// on a majority, and tells its holder if it does not. One node's word is not enough: it
// may have been told by a break that no majority let through.
func (l *listener) verify(owner, reason string) {
	h := l.holds.get(owner)
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.closed, callLimit)
	defer cancel()
	if err := l.renewer.Renew(ctx, []driver.Lease{h.lease})[0]; errors.Is(err, driver.ErrNotHeld) {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.lease.Name, reason))
	}
}
