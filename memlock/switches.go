package memlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Lose makes the store forget who holds name, as an engine does that lost its
// data: the holders' Lost is called, Renew and Release say driver.ErrNotHeld,
// and the next waiter is granted. The token still grows.
func (e *Engine) Lose(name string) {
	s := e.store
	s.do(func(now time.Time) {
		_ = s.with(name, now, func(l *lock) error {
			l.revoke(l.holders, fmt.Errorf("%w: the engine forgot %q", driver.ErrLost, name), now)
			return nil
		})
	})
}

// Delay makes every later call of this client take d before it does anything;
// 0 ends it.
func (e *Engine) Delay(d time.Duration) {
	e.store.do(func(time.Time) { e.client.delay = d })
}

// Refuse makes every call of this client fail with driver.ErrUnavailable around
// err, those that wait included, until Refuse(nil). What it holds stays held
// until it expires.
func (e *Engine) Refuse(err error) {
	e.store.do(func(now time.Time) {
		switch {
		case e.client.killed:
		case err == nil:
			e.client.refusal = nil
		default:
			e.store.cut(e.client, fmt.Errorf("%w: %w", driver.ErrUnavailable, err), now)
		}
	})
}

// Kill ends this client as kill -9 ends a process: its waiters vanish, what it
// holds stays held until it expires, no callback of it is called any more, and
// its calls fail with driver.ErrUnavailable for good.
func (e *Engine) Kill() {
	e.store.do(func(now time.Time) {
		e.client.killed, e.client.backlog = true, nil
		e.store.cut(e.client, fmt.Errorf("%w: %w", driver.ErrUnavailable, errKilled), now)
		e.client.thaw()
	})
}

var errKilled = errors.New("the client was killed")

// cut breaks a client's connection: its waiters leave, and whatever it still does
// fails with cause. The caller has the mutex.
func (s *store) cut(client *client, cause error, now time.Time) {
	client.refusal = cause
	s.each(driver.Query{}, now, func(l *lock) {
		for _, c := range slices.Concat(l.queue, l.holders) {
			if c.client == client && !c.granted() {
				l.withdraw(c, now)
				c.wake.ring()
			}
		}
	})
	for _, w := range s.watchers {
		w.wake.ring() // those of the client end, the others find no news
	}
}

// Freeze stops this client as SIGSTOP stops a process: its calls block, even
// those whose context ends, and none of its callbacks is called, until Thaw. Its
// leases run on, and it keeps its places among the waiters; a grant it does not
// take within two seconds (or its TTL, if shorter) passes to the next.
func (e *Engine) Freeze() {
	e.store.do(func(time.Time) {
		if e.client.frozen == nil && !e.client.killed {
			e.client.frozen = make(chan struct{})
		}
	})
}

// Thaw lets a frozen client go on, and calls the callbacks that fell due meanwhile.
func (e *Engine) Thaw() {
	s := e.store
	s.do(func(time.Time) {
		s.after = append(s.after, e.client.backlog...)
		e.client.backlog = nil
		e.client.thaw()
	})
}

// thaw lets the calls go on that block. The caller has the store's mutex.
func (c *client) thaw() {
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
}

// Hang makes the store silent for all its clients, as a frozen server is: calls
// block, and fail with driver.ErrUnavailable when their context ends; a waiter learns
// nothing. Leases run on. It lasts until Resume.
func (e *Engine) Hang() {
	s := e.store
	s.do(func(time.Time) {
		if s.hung == nil {
			s.hung = make(chan struct{})
		}
	})
}

// Resume lets a store that hangs go on.
func (e *Engine) Resume() {
	s := e.store
	s.do(func(now time.Time) {
		if s.hung == nil {
			return
		}
		close(s.hung)
		s.hung = nil
		s.each(driver.Query{}, now, func(l *lock) { // grants fell due that nobody could take
			for _, c := range slices.Concat(l.queue, l.holders) {
				c.wake.ring()
			}
		})
	})
}

// Restart stops and starts the store. Holders, minimum holds and tokens survive;
// the queues do not, so every waiter joins again, at its old place.
func (e *Engine) Restart() {
	s := e.store
	s.do(func(now time.Time) {
		s.each(driver.Query{}, now, func(l *lock) {
			for _, c := range slices.Clone(l.queue) {
				l.withdraw(c, now)
				c.wake.ring() // to join again
			}
		})
	})
}
