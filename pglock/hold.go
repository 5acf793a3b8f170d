package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// hold is one acquisition of this process.
type hold struct {
	session *session // the hold ends with it
	alone   bool     // the session was a waiter's, and serves this hold only
	key     int64
	name    string
	owner   string
	token   int64
	mode    driver.Mode
	seats   int  // the limit; 0 means none
	least   bool // it has a minimum hold
	broken  bool // by a break
	ttl     time.Duration
	since   time.Time
	driver.Identity
	lost func(error)

	until time.Time // when it ends unless renewed; guarded by Engine.mu

	noted     noted         // guarded by registry.mu, as the next two
	withdrawn bool          // never write it down any more
	flight    chan struct{} // closed when the note under way has been written

	// What a release found: noted and flight.
	left    noted
	landing <-chan struct{}
	marked  bool  // the release marked the key
	forgot  *call // deletes the row of a shared holder
}

// tell tells the holder that its lock is gone.
func (h *hold) tell(cause error) {
	if h.lost != nil {
		h.lost(cause)
	}
}

// keep makes granted requests of one session holds, unless it has ended meanwhile or
// one of them was broken before it began.
func (e *Engine) keep(holds ...*hold) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := holds[0].session.over(); err != nil {
		return err
	}
	for _, h := range holds {
		if h.token < e.turns[h.key].broken {
			return errBroken
		}
	}
	for _, h := range holds {
		e.holds[h.owner] = h
		h.session.holds[h] = struct{}{}
		h.session.keys[h.key]++
		e.turnLocked(h.key, func(t *turn) { t.done(true) })
	}
	return nil
}

// drop forgets a hold; e.mu is held. Its turn goes on when the server has let go.
func (e *Engine) drop(h *hold) {
	delete(e.holds, h.owner)
	delete(h.session.holds, h)
	if h.session.keys[h.key]--; h.session.keys[h.key] == 0 {
		delete(h.session.keys, h.key)
	}
}

// find returns the hold of a lease, nil if it does not stand. e.mu is held.
func (e *Engine) find(l driver.Lease) *hold {
	h := e.holds[l.Owner]
	if h == nil || h.token != l.Token || h.name != l.Name {
		return nil
	}
	return h
}

// take takes the hold of a lease away, whose server lock is the caller's to free,
// and says whether its lease was over.
func (e *Engine) take(l driver.Lease) (h *hold, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h = e.find(l); h == nil {
		return nil, false
	}
	e.drop(h)
	return h, time.Now().After(h.until) || h.session.over() != nil
}

// letGo sends what frees the server lock of a dropped hold.
//
// The next holder does not wait until the row of this one is deleted: it sees by
// another advisory lock that the row is about to be. The rows of shared holders
// count who is in, and so go first.
func (e *Engine) letGo(h *hold) *call {
	h.left, h.landing = e.registry.withdraw(h)
	switch {
	case h.mode == driver.Shared:
		h.forgot = h.session.send(stmtForget, h.owner, h.key)
		return h.session.send(stmtUnlockShared, h.key)
	case h.left == unwritten:
		return h.session.send(stmtUnlock, h.key)
	default:
		return h.session.send(stmtRelease, h.key, markOfToken(h.token), h.keyMark(!h.least && !h.broken))
	}
}

// keyMark is the number that marks the key of a hold, or NULL. A minimum hold is not
// over yet for who comes next; and after a break that one needs a token of its own.
func (h *hold) keyMark(wanted bool) any {
	if !wanted {
		return nil
	}
	return markOfKey(h.key)
}

// gone waits for the server to let go, and lets the next request of this process
// at the lock.
func (e *Engine) gone(h *hold, free *call) error {
	rows, err := free.wait(context.Background())
	if err != nil {
		h.session.distrust(err)
	} else if free.stmt == stmtRelease {
		h.marked = rows[0].text(1) == "t"
	}
	if h.seats > 0 || h.stays() {
		time.AfterFunc(settleDelay, func() { e.settle(h) }) // ends when the server has answered or the connection has ended
	} else {
		e.leave(h.session, h)
	}
	e.turn(h.key, func(t *turn) { t.leave(h.mode) })
	return err
}

// stays reports whether the row of a hold that let go is in the table yet.
func (h *hold) stays() bool {
	if h.mode == driver.Exclusive {
		return h.left != unwritten
	}
	_, err := h.forgot.wait(context.Background()) // it came before the unlock
	return err != nil
}

// settleDelay keeps the work after a release out of the way of the next holder.
const settleDelay = 2 * time.Millisecond

// settle does what is left to do after a release, before the session of a waiter
// is used again.
func (e *Engine) settle(h *hold) {
	s := h.session
	if h.left == flying {
		select {
		case <-h.landing:
		case <-s.dead:
		}
	}
	if h.stays() {
		e.forget(h)
	}
	if h.mode == driver.Exclusive {
		if _, err := s.run(context.Background(), stmtReleased, markOfToken(h.token), h.keyMark(h.marked)); err != nil {
			s.distrust(err)
		}
	}
	if h.seats > 0 {
		_, _ = s.run(context.Background(), stmtNotify, freed(h.key)) // those who wait for a seat look by themselves as well
	}
	e.leave(s, h)
}

// forget deletes the row of a hold, on the engine's own session: a statement on
// one with many locks costs more.
func (e *Engine) forget(h *hold) {
	ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
	defer cancel()
	if _, err := e.ask(ctx, stmtForgetLate, h.owner, h.key); err != nil {
		_, _ = h.session.run(ctx, stmtForget, h.owner, h.key) // else it closes the name until the lease is over
	}
}

// free lets go of a dropped hold.
func (e *Engine) free(h *hold) error { return e.gone(h, e.letGo(h)) }

// leave gives the session of a waiter back.
func (e *Engine) leave(s *session, h *hold) {
	if h.alone {
		e.park(s)
	} else if !s.usable() {
		s.distrust(errors.New("an error, with its last lock"))
	}
}

// Renew extends acquisitions to a full TTL from now, with one statement for each
// connection they live on. One whose connection has ended, that was broken or
// that nobody renewed in time is driver.ErrNotHeld.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	groups := map[*session][]int{}
	e.mu.Lock()
	now := time.Now()
	for i, l := range leases {
		h := e.find(l)
		if h == nil || now.After(h.until) {
			errs[i] = notHeld(l.Name)
			continue
		}
		groups[h.session] = append(groups[h.session], i)
	}
	e.mu.Unlock()
	calls := make(map[*session]*call, len(groups))
	for s := range groups {
		calls[s] = s.beat()
	}
	if s := e.own.cur.Load(); len(groups) > 0 && (s == nil || !s.usable()) {
		go e.reopen() // ends when the session is open or cannot be opened
	}
	for s, c := range calls {
		rows, err := c.wait(ctx)
		e.renewed(s.beaten(rows, err), s, leases, groups[s], errs)
	}
	return errs
}

// renewed notes what a heartbeat means for the leases of one session.
func (e *Engine) renewed(err error, s *session, leases []driver.Lease, which []int, errs []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range which {
		switch h := e.find(leases[i]); {
		case h == nil || s.over() != nil:
			errs[i] = notHeld(leases[i].Name)
		case err != nil:
			errs[i] = unavailable(err)
		default:
			h.until = time.Now().Add(h.ttl)
		}
	}
}

// Release ends an acquisition, and lets the next one in. When it returns nil the
// server has let go.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	h, over := e.take(lease)
	switch {
	case h == nil:
		return notHeld(lease.Name)
	case over:
		go func() { _ = e.free(h) }() // ends when the server has answered or the connection has ended
		return notHeld(lease.Name)
	}
	free := e.letGo(h)
	if _, err := free.wait(ctx); err != nil && !free.answered() {
		go func() { _ = e.gone(h, free) }() // ends when the server has answered or the connection has ended
		return unavailable(fmt.Errorf("releasing %q: %w", lease.Name, err))
	}
	if err := e.gone(h, free); err != nil {
		return unavailable(fmt.Errorf("releasing %q: %w", lease.Name, err))
	}
	return nil
}

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }
