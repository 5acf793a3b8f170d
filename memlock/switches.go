package memlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Lose removes the holders of name, like an engine that lost its data. Their OnLost is called,
// Renew and Release return driver.ErrNotHeld, and the next waiter is granted with a greater token.
func (e *Engine) Lose(name string) {
	s := e.store
	s.do(func(now time.Time) {
		_ = s.with(name, now, func(l *lock) error {
			l.revoke(l.holders, fmt.Errorf("%w: the engine lost the data of %q", driver.ErrLost, name), now)
			return nil
		})
	})
}

// Delay delays every later call of this client by d. 0 switches it off.
func (e *Engine) Delay(d time.Duration) {
	e.store.do(func(time.Time) { e.client.delay = d })
}

// Refuse makes every call of this client, including waiting ones, fail with driver.ErrUnavailable
// wrapping err, until Refuse(nil). Its locks stay held until they expire.
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

// Kill ends this client, as kill -9 ends a process: its waiters vanish, its locks stay held until
// they expire, none of its callbacks is called any more, and all of its calls fail with
// driver.ErrUnavailable.
func (e *Engine) Kill() {
	e.store.do(func(now time.Time) {
		e.client.killed, e.client.backlog = true, nil
		e.store.cut(e.client, fmt.Errorf("%w: %w", driver.ErrUnavailable, errKilled), now)
		e.client.thaw()
	})
}

var errKilled = errors.New("the client was killed")

// cut ends a client's connection: its waiters leave, and its further calls fail with cause. The
// caller has the mutex.
func (s *store) cut(client *client, cause error, now time.Time) {
	client.refusal = cause
	s.each(driver.Query{}, now, func(l *lock) {
		for _, c := range slices.Concat(l.queue, l.holders) {
			if c.client == client && !c.granted() {
				l.withdraw(c, now)
				c.wake.send()
			}
		}
	})
	for _, w := range s.watchers {
		w.wake.send() // waiters of the client return, others find nothing new
	}
}

// Freeze stops this client, as SIGSTOP stops a process, until Thaw: its calls block, even if their
// context ends, and none of its callbacks is called. Its leases run out, and it keeps its places in
// the queues. A grant that it does not take within two seconds (or its TTL, if shorter) passes to
// the next waiter.
func (e *Engine) Freeze() {
	e.store.do(func(time.Time) {
		if e.client.frozen == nil && !e.client.killed {
			e.client.frozen = make(chan struct{})
		}
	})
}

// Thaw resumes a frozen client, and calls the callbacks that became due meanwhile.
func (e *Engine) Thaw() {
	s := e.store
	s.do(func(time.Time) {
		s.after = append(s.after, e.client.backlog...)
		e.client.backlog = nil
		e.client.thaw()
	})
}

// thaw resumes blocked calls. The caller has the store's mutex.
func (c *client) thaw() {
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
}

// Hang makes the store unresponsive for all its clients until Resume, like a frozen server: calls
// block, and fail with driver.ErrUnavailable when their context ends. Leases run out.
func (e *Engine) Hang() {
	s := e.store
	s.do(func(time.Time) {
		if s.hung == nil {
			s.hung = make(chan struct{})
		}
	})
}

// Resume makes a store that hangs answer again.
func (e *Engine) Resume() {
	s := e.store
	s.do(func(now time.Time) {
		if s.hung == nil {
			return
		}
		close(s.hung)
		s.hung = nil
		s.each(driver.Query{}, now, func(l *lock) { // grants became due that nobody could take
			for _, c := range slices.Concat(l.queue, l.holders) {
				c.wake.send()
			}
		})
	})
}

// Restart simulates a restart of the store. Holders, minimum holds and tokens survive. The queues
// are lost, so every waiter joins again at its old place.
func (e *Engine) Restart() {
	s := e.store
	s.do(func(now time.Time) {
		s.each(driver.Query{}, now, func(l *lock) {
			for _, c := range slices.Clone(l.queue) {
				l.withdraw(c, now)
				c.wake.send() // to join again
			}
		})
	})
}
