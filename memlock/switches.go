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
	e.store.do(func(now time.Time) {
		l := e.store.lock(name, now)
		e.store.revoke(l, slices.Clone(l.holders), fmt.Errorf("%w: the engine forgot %q", driver.ErrLost, name), now)
		e.store.settle(l, now)
	})
}

// Delay makes every later call of this client take d before it does anything;
// 0 ends it.
func (e *Engine) Delay(d time.Duration) {
	e.store.do(func(time.Time) { e.delay = d })
}

// Refuse makes every call of this client fail with driver.ErrUnavailable around
// err, those that wait included, until Refuse(nil). What it holds stays held
// until it expires.
func (e *Engine) Refuse(err error) {
	e.store.do(func(now time.Time) {
		switch {
		case e.killed:
		case err == nil:
			e.refusal = nil
		default:
			e.store.cut(e, fmt.Errorf("%w: %w", driver.ErrUnavailable, err), now)
		}
	})
}

// Kill ends this client as kill -9 ends a process: its waiters vanish, what it
// holds stays held until it expires, no callback of it is called any more, and
// its calls fail with driver.ErrUnavailable for good.
func (e *Engine) Kill() {
	e.store.do(func(now time.Time) {
		e.killed, e.backlog = true, nil
		e.store.cut(e, fmt.Errorf("%w: %w", driver.ErrUnavailable, errKilled), now)
		e.thaw()
	})
}

var errKilled = errors.New("the client was killed")

// Freeze stops this client as SIGSTOP stops a process: its calls block, even
// those whose context ends, and none of its callbacks is called, until Thaw. Its
// leases run on, and it keeps its places among the waiters; a grant it does not
// take within two seconds (or its TTL, if shorter) passes to the next.
func (e *Engine) Freeze() {
	e.store.do(func(time.Time) {
		if e.frozen == nil && !e.killed {
			e.frozen = make(chan struct{})
		}
	})
}

// Thaw lets a frozen client go on, and calls the callbacks that fell due meanwhile.
func (e *Engine) Thaw() {
	e.store.do(func(time.Time) {
		e.store.after = append(e.store.after, e.backlog...)
		e.backlog = nil
		e.thaw()
	})
}

func (e *Engine) thaw() {
	if e.frozen != nil {
		close(e.frozen)
		e.frozen = nil
	}
}

// Hang makes the store silent for all its clients, as a frozen server is: calls
// block, and fail with driver.ErrUnavailable when their context ends; a waiter learns
// nothing. Leases run on. It lasts until Resume.
func (e *Engine) Hang() {
	e.store.do(func(time.Time) {
		if e.store.hung == nil {
			e.store.hung = make(chan struct{})
		}
	})
}

var errHung = errors.New("no answer")

// Resume lets a store that hangs go on.
func (e *Engine) Resume() {
	e.store.do(func(now time.Time) {
		if e.store.hung == nil {
			return
		}
		close(e.store.hung)
		e.store.hung = nil
		for _, l := range e.store.locks {
			for _, c := range slices.Concat(l.queue, l.holders) {
				c.wake.ring()
			}
		}
	})
}

// Restart stops and starts the store. Holders, minimum holds and tokens survive;
// the queues do not, so every waiter joins again, at its old place.
func (e *Engine) Restart() {
	e.store.do(func(now time.Time) {
		for _, l := range e.store.locks {
			for _, c := range slices.Clone(l.queue) {
				l.leave(c)
				e.store.emit(driver.EventLeft, c, now)
				c.wake.ring()
			}
			e.store.settle(l, now)
		}
	})
}

// cut breaks a client's connection: its waiters leave, and whatever it still
// does fails with cause.
func (s *store) cut(e *Engine, cause error, now time.Time) {
	e.refusal = cause
	for _, l := range s.locks {
		for _, c := range slices.Concat(l.queue, l.holders) {
			if c.client == e && (c.pending || c.token == 0) {
				s.withdraw(l, c, now)
				c.wake.ring()
			}
		}
		s.settle(l, now)
	}
	for w := range s.watchers {
		if w.client == e {
			w.wake.ring()
		}
	}
}
