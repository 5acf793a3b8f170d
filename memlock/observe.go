package memlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// List returns the names matching q that are held, waited for, or closed by a minimum hold, in
// order.
func (e *Engine) List(ctx context.Context, q driver.Query) (list []driver.Status, err error) {
	err = e.call(ctx, func(now time.Time) error {
		e.store.each(q, now, func(l *lock) {
			if st := l.status(now); len(st.Holders) > 0 || len(st.Waiters) > 0 || !st.NotBefore.IsZero() {
				list = append(list, st)
			}
		})
		return nil
	})
	return list, err
}

// status returns the status of a name.
func (l *lock) status(now time.Time) driver.Status {
	st := driver.Status{Name: l.name}
	if all := slices.Concat(l.holders, l.queue); len(all) > 0 {
		st.Mode, st.Limit = all[0].req.Mode, all[0].req.Limit
	}
	if st.Limit > 0 {
		st.Limit = cmp.Or(l.limit, st.Limit)
	}
	for _, h := range l.holders {
		st.Holders = append(st.Holders, driver.Holder{
			Identity: h.req.Identity, Owner: h.owner, Token: h.token, Since: h.since, TTL: h.until.Sub(now), Lease: h.req.TTL, Weight: h.weight()})
	}
	for _, w := range l.queue {
		st.Waiters = append(st.Waiters, driver.Waiter{
			Identity: w.req.Identity, Owner: w.owner, Since: w.joined, Position: l.queue.position(w), Weight: w.weight()})
	}
	if now.Before(l.notBefore) {
		st.NotBefore = l.notBefore
	}
	return st
}

// Watch calls fn for every event of the names matching q, in order and on the calling goroutine. It
// starts with events for the current holders and waiters. It returns ctx.Err() when ctx ends, or
// the error of fn.
func (e *Engine) Watch(ctx context.Context, q driver.Query, fn func(driver.Event) error) error {
	w := &watcher{query: q, wake: newSignal()}
	if err := e.call(ctx, func(now time.Time) error { e.store.follow(w, now); return nil }); err != nil {
		return err
	}
	defer e.store.do(func(time.Time) {
		e.store.watchers = slices.DeleteFunc(e.store.watchers, func(o *watcher) bool { return o == w })
	})
	for {
		ev, ok, err := e.next(w)
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

// follow gives a watcher events for the current state, and adds it to the watchers.
func (s *store) follow(w *watcher, now time.Time) {
	s.each(w.query, now, func(l *lock) {
		for _, c := range l.holders {
			w.events = append(w.events, c.event(driver.EventAcquired, c.since))
		}
		for _, c := range l.queue {
			w.events = append(w.events, c.event(driver.EventWaiting, c.joined))
		}
	})
	s.watchers = append(s.watchers, w)
}

// next returns the oldest event that was not reported. ok is false if there is none. It is a step
// of the client: it blocks while the client is frozen, and fails while its calls are refused.
func (e *Engine) next(w *watcher) (ev driver.Event, ok bool, err error) {
	err = e.do(func(time.Time) error {
		if e.client.refusal == nil && len(w.events) > 0 {
			ev, w.events, ok = w.events[0], w.events[1:], true
		}
		return e.client.refusal
	})
	return ev, ok, err
}
