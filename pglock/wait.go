package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// grantTTL is the longest lease of a request granted after a wait, until its first renewal. If the
// waiter has died meanwhile, its lease closes the name no longer than that.
const grantTTL = 2 * time.Second

// waitGrace is how long after the bound the server may answer. The bound is the server's
// lock_timeout, which is affected when its clock is set.
const waitGrace = time.Second

// wait is a request in the server's queue, on a connection of its own. Its ticket keeps its place
// between two statements.
type wait struct {
	*attempt
	session *session
	ticket  int64
	full    bool          // it was next, but the limit was used up
	woken   chan struct{} // receives when the row of a vanished holder was cleared
}

// queueUp waits for the key on a connection of its own, on which the lock is then held. It is the
// only request of this process that does so for this key. If all such connections are in use, it
// polls on the session for uncontended locks.
func (a *attempt) queueUp(ctx context.Context, uncontended *session) (g driver.Grant, err error) {
	ttl, _ := a.locks.pick(a.req.TTL)
	s, err := a.waiters.get(ctx, ttl)
	if errors.Is(err, errCrowded) {
		return a.crowd(ctx, uncontended)
	}
	if err != nil {
		return g, err
	}
	a.own.listen()
	woken, leave := a.sleepers.enter(a.key)
	defer leave()
	w := &wait{attempt: a, session: s, woken: woken}
	granted := false
	defer func() { // also when OnWait panics
		if !granted {
			w.leave()
		}
	}()
	if err := s.quarantine(time.Now()); err != nil {
		return g, err
	}
	a.queues.change(a.key, func(t *localQueue) { t.block() })
	position, err := w.join(ctx)
	if err != nil {
		return g, err
	}
	a.joined(ctx, position)
	for {
		g, err = w.once(ctx)
		switch {
		case err == nil:
			granted = true
			return g, nil
		case !errors.Is(err, errHeld) && !errors.Is(err, errBusy):
			return g, err
		}
	}
}

// join draws a ticket.
func (w *wait) join(ctx context.Context) (position int, err error) {
	r, err := w.sendJoin(w.session).Result(ctx)
	if err != nil {
		return 0, err
	}
	w.listed = false // the row is removed with the ticket
	w.ticket = r.Int(0)
	return int(r.Int(1)), nil
}

// sendJoin sends the request for a ticket. The ticket lives as long as session s.
func (a *attempt) sendJoin(s *session) *pipe.Call {
	return s.Call(s.fn["join"], a.key, a.owner, a.req.Name, a.req.TTL, s.id, a.req.Host, int32(a.req.PID), a.req.Note,
		a.req.Mode == driver.Shared, int32(a.req.Limit), int32(a.req.Units()))
}

// once waits for as long as one statement may take.
func (w *wait) once(ctx context.Context) (driver.Grant, error) {
	a, s := w.attempt, w.session
	select {
	case <-w.woken: // by what the server is about to see anyway
	default:
	}
	bound := waitBound(s.ttl)
	fn, args := "await", a.lockArgs(s, w.ticket, min(a.req.TTL, grantTTL))
	if a.req.Mode == driver.Shared {
		fn, args = "await_shared", append(args, int32(a.req.Limit), int32(a.req.Units()))
	}
	if w.full {
		fn = "await_seat"
	}
	c := s.CallPatiently(bound, s.fn[fn], args...)
	r, err := w.patiently(ctx, c, bound+waitGrace)
	if err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == deadlockDetected {
			return driver.Grant{}, &refusal{err: err} // waiting again would cause the same deadlock
		}
		return driver.Grant{}, err
	}
	g, err := a.handleVerdict(ctx, s, r, nil, c.Sent())
	switch {
	case errors.Is(err, errHeld):
		return g, w.later(ctx, r)
	case err != nil:
		a.undo(s, r, nil, false)
	}
	return g, err
}

// leave takes the request out of the queue and closes its connection, with all locks on it: after
// an error or a cancelled statement it is unknown which those are.
func (w *wait) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	_, _ = w.session.Call(w.session.fn["give_up"], w.owner, w.ticket, w.key, w.session.id).Wait(ctx) // if it fails, the rows are recognized as dead
	w.session.Close(fmt.Errorf("a wait was given up: %w", errSpare))
	<-w.waiters.slots
}

// patiently waits for an answer. When the time limit passes or ctx ends, it cancels the statement.
func (w *wait) patiently(ctx context.Context, c *pipe.Call, limit time.Duration) (pipe.Row, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = c.Wait(limited)
	if c.Answered() {
		return c.Result(context.Background())
	}
	back, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	c.Cancel(back)
	switch {
	case !c.Answered():
		w.session.Kill(errSilent)
		return nil, errSilent
	case ctx.Err() != nil:
		if r, err := c.Result(back); err == nil {
			w.undo(w.session, r, nil, false) // it was granted at the same moment
		}
		return nil, ctx.Err()
	}
	return w.overdue(c)
}

// overdue handles a cancelled wait that the server did not end in time: the request waits again.
func (w *wait) overdue(c *pipe.Call) (pipe.Row, error) {
	r, err := c.Result(context.Background())
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != queryCanceled {
		return r, err
	}
	if err := w.session.unlock(w.key, w.req.Mode); err != nil {
		return nil, err
	}
	return pipe.Row{[]byte("again")}, nil
}

// seatLook is how long await_seat polls for free capacity.
const seatLook = 100 * time.Millisecond

// rowLook is how long a wait ignores that the row of a vanished holder may be gone. If a release
// could not delete its row, its process does so later and notifies the waiters. The notification may
// be lost with a connection.
const rowLook = time.Second

// later waits until it makes sense to ask again, depending on the verdict.
func (w *wait) later(ctx context.Context, r pipe.Row) error {
	longest := w.session.ttl / 3
	var d time.Duration
	w.full = false
	switch r.Text(0) {
	case "closed":
		d = min(r.Millis(1), longest)
	case "left":
		d = min(r.Millis(1), longest, w.rowLook)
	case "full":
		w.waited.Held(&driver.HeldError{Name: w.req.Name})
		if d = r.Millis(1); d == 0 || d > seatLook {
			d, w.full = 0, true // the next request polls for capacity
		}
	case "again":
		w.waited.Held(&driver.HeldError{Name: w.req.Name})
	default: // a holder of another program was faster
		d = retry.Jitter(2 * time.Millisecond)
	}
	if d > 0 {
		w.waited.Held(&driver.HeldError{Name: w.req.Name})
		if !retry.Nap(ctx, d, w.woken) {
			return ctx.Err()
		}
	}
	return errHeld
}

// crowdPause is the shortest pause between two attempts of a request without a connection of its
// own.
const crowdPause = 50 * time.Millisecond

// crowd waits without a connection of its own: it has a ticket on the session for uncontended
// locks, which keeps its place, and polls.
func (a *attempt) crowd(ctx context.Context, s *session) (g driver.Grant, err error) {
	c := a.sendJoin(s)
	a.unqueue = func() {
		a.unqueue = nil
		if r, err := c.Result(context.Background()); err == nil {
			a.ticket = 0
			s.leaveQueue(a.owner, r.Int(0))
		}
	}
	r, err := c.Result(ctx)
	if err != nil {
		if !c.Answered() {
			a.detach(func() {})
		}
		return g, err
	}
	a.ticket = r.Int(0)
	defer func() {
		if !a.detached && a.unqueue != nil {
			a.unqueue()
		}
	}()
	a.queues.change(a.key, func(t *localQueue) { t.block() })
	a.joined(ctx, int(r.Int(1)))
	for {
		if !retry.Sleep(ctx, crowdPause+retry.Jitter(crowdPause)) {
			return g, ctx.Err()
		}
		if g, err = a.try(ctx, s); !errors.Is(err, errHeld) && !errors.Is(err, errBusy) {
			return g, err
		}
		a.waited.Held(&driver.HeldError{Name: a.req.Name})
	}
}
