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

// listener receives the messages that nodes publish about releases and breaks.
type listener struct {
	*client
	set     *nodeSet
	holds   *holdings
	news    *news
	renewer *renewer
	once    sync.Once // starts the subscriptions, on first use
}

// start subscribes to every node, once.
func (l *listener) start() {
	l.once.Do(func() {
		for _, n := range l.set.nodes {
			l.tasks.Spawn(func() { l.follow(n) }) // ends with Close
		}
	})
}

// follow keeps a subscription to a node up, with backoff after failures. Without it waiters poll.
// When it is up again, waiters of the leader poll once, because messages may have been missed.
func (l *listener) follow(n *node) {
	pause := retry.NewBackoff(10*time.Millisecond, time.Second)
	ready := func() {
		pause.Reset()
		n.subscribed.Store(true)
		if l.set.leader() == n {
			l.news.notify("", everybody)
		}
	}
	for l.closed.Err() == nil {
		_ = n.conn.Subscribe(l.closed, l.cfg.channel(), ready, func(text string) { l.onMessage(n, text) })
		n.subscribed.Store(false)
		pause.Wait(l.closed)
	}
}

// onMessage handles a message of a node. Two nodes publish a release. The leader's message
// determines who is next; the other one is used in case the leader's is missed.
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

// verify checks whether a lock that one node reported as broken still exists on a majority, and
// notifies its holder if it does not. The report of one node is not enough, because a break may not
// have reached a majority.
func (l *listener) verify(owner, reason string) {
	h := l.holds.get(owner)
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.closed, callLimit)
	defer cancel()
	if err := l.renewer.Renew(ctx, []driver.Lease{h.lease})[0]; errors.Is(err, driver.ErrNotHeld) {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, h.lease.Name, reason))
	}
}
