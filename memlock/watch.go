package memlock

import (
	"cmp"
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// watcher collects events for one Watch. Its queue has no bound, so that a slow
// watcher never holds up the store.
type watcher struct {
	client *Engine
	query  driver.Query
	events []driver.Event
	wake   bell // rings when there are events, or the client is refused
}

// Watch calls fn for every event of the names q chooses, in their order, on the
// calling goroutine. It returns ctx.Err() when ctx ends.
func (e *Engine) Watch(ctx context.Context, q driver.Query, fn func(driver.Event) error) error {
	w := &watcher{client: e, query: q, wake: newBell()}
	if err := e.call(ctx, func(now time.Time) error { e.store.watch(w, now); return nil }); err != nil {
		return err
	}
	defer e.store.do(func(time.Time) { delete(e.store.watchers, w) })
	for {
		ev, ok, err := w.next()
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if ok {
			if err := fn(ev); err != nil {
				return err
			}
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// next takes an event from the queue; ok is false if there is none.
func (w *watcher) next() (ev driver.Event, ok bool, err error) {
	w.client.do(func(time.Time) {
		if err = w.client.refusal; err == nil && len(w.events) > 0 {
			ev, w.events, ok = w.events[0], w.events[1:], true
		}
	})
	return ev, ok, err
}

// watch adds a watcher and gives it what stands.
func (s *store) watch(w *watcher, now time.Time) {
	for _, l := range s.chosen(w.query, now) {
		for _, c := range l.holders {
			w.events = append(w.events, c.event(driver.EventAcquired, c.since))
		}
		for _, c := range l.queue {
			w.events = append(w.events, c.event(driver.EventWaiting, c.joined))
		}
	}
	s.watchers[w] = true
}

// emit queues an event for the watchers it concerns.
func (s *store) emit(kind driver.EventKind, c *claim, now time.Time) {
	for w := range s.watchers {
		if w.query.Matches(c.req.Name) {
			w.events = append(w.events, c.event(kind, now))
			w.wake.ring()
		}
	}
}

func (c *claim) event(kind driver.EventKind, at time.Time) driver.Event {
	return driver.Event{Identity: c.req.Identity, Kind: kind, Name: c.req.Name, Owner: c.owner, Token: c.token, Time: at}
}
