package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
)

// A request is one call of Acquire. One goroutine uses it.
type request struct {
	driver.Request
	engine *Engine
	ticket ticket
	record record
	file   *os.File      // the ticket's file; nil if there is none
	fresh  []*os.File    // numbers that must be durable before a grant is returned
	closed int64         // the end of the minimum hold among them; 0 if there is none
	wake   chan struct{} // signals that the way may be clear
	fifo   *os.File      // through which other processes signal; nil if they cannot
	waited driver.Waited

	informed bool // OnWait was called
}

// Acquire makes one acquisition; see [driver.Engine]. If the file system refuses an operation, it
// returns driver.ErrUnavailable or driver.ErrConfig and leaves no ticket behind.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(e.Traits()); err != nil {
		return driver.Grant{}, err
	}
	if err := e.dir.ready(ctx, true); err != nil {
		return driver.Grant{}, err
	}
	e.sweeper.maybeSweep() // processes that create names also remove idle ones
	r := e.newRequest(req)
	defer r.quit()
	o, grant, err := r.attempt(ctx)
	for req.Wait && errors.Is(err, errStuck) { // a waiter waits for a process that is stopped while it has the directory lock
		r.waited.Unavailable(ctx, err)
		o, grant, err = r.attempt(ctx)
	}
	if o != nil && err == nil && !req.Wait {
		o.close()
		return driver.Grant{}, o.held
	}
	if o != nil && err == nil {
		r.waited.Held(o.held)
		grant, err = r.wait(ctx, o)
	}
	return r.answer(ctx, grant, err)
}

// whole is the cut of a ticket, which may be long.
func whole(text string) string { return text }

// newRequest returns a request that has written nothing yet.
func (e *Engine) newRequest(req driver.Request) *request {
	owner := uuid.Must(uuid.NewV7()).String() // never fails
	r := &request{Request: req, engine: e, wake: make(chan struct{}, 1)}
	r.ticket = ticket{seq: noPlace, mode: req.Mode, limit: req.Limit, owner: owner}
	if req.Limit > 0 {
		r.ticket.weight = req.Units()
	}
	r.record = record{
		Owner: r.ticket.owner, JSON: identity.JSONOf(req.Identity, whole),
		Since: time.Now(), Mode: req.Mode.String(), Limit: req.Limit, Weight: r.ticket.weight,
		Machine: machine(), Process: os.Getpid(),
	}
	return r
}

// answer converts the result of a request to the caller's error. It is ErrHeld only if a check
// under the directory lock has found a holder.
func (r *request) answer(ctx context.Context, grant driver.Grant, err error) (driver.Grant, error) {
	switch {
	case err == nil:
		return grant, nil
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrHeld):
		return driver.Grant{}, err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && r.Wait:
		return driver.Grant{}, r.waited.Ended(ctx, err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return driver.Grant{}, fmt.Errorf("acquire %q: %w", r.Name, err)
	}
	return driver.Grant{}, r.waited.Ended(ctx, r.engine.dir.unavailable(err))
}

// attempt makes one attempt under the directory lock. It returns a grant, a blocker or an error.
// With a blocker, a request that waits has joined the queue.
func (r *request) attempt(ctx context.Context) (*blocker, driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.Grant{}, err
	}
	g, err := r.engine.dir.enter(ctx, r.Name, true)
	if err != nil {
		return nil, driver.Grant{}, err
	}
	o, h, err := r.decide(g)
	g.leave() // before anyone is notified or anything is synced
	if o != nil || err != nil {
		return o, driver.Grant{}, err
	}
	if r.Mode == driver.Shared {
		r.engine.waker.wake(r.Name, r.ticket.seq) // waiters may be able to share the lock
	}
	return nil, h.grant, r.confirm(ctx, h)
}

// confirm makes the grant durable. If that fails, or the request has ended at the same moment, it
// releases the grant. It runs without the directory lock, so that a slow disk does not delay other
// processes.
func (r *request) confirm(ctx context.Context, h *hold) error {
	err := settle(r.fresh...)
	if err == nil && r.engine.hook != nil {
		r.engine.hook(h.grant.Token)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.engine.holds.drop(h.grant.Owner)
		if r.closed > 0 {
			if g, err := r.engine.dir.enter(context.WithoutCancel(ctx), r.Name, false); err == nil {
				r.reopen(g)
				g.leave()
			}
		}
		_ = h.release() // after reopen, so that the waiter that is woken finds the name open
	}
	return err
}

// reopen removes the minimum hold of a failed grant, unless the grant was broken and another
// minimum hold has begun since.
func (r *request) reopen(g *nameLock) {
	if n, _, err := g.readNumber(notBeforeFile); err == nil && n == r.closed {
		if f, err := g.writeNumber(notBeforeFile, 0); err == nil {
			_ = settle(f)
		}
	}
	r.closed = 0
}

// decide is the part of attempt under the directory lock. Two mechanisms must agree that the
// request may hold: the tickets, and then the flock of the lock file.
func (r *request) decide(g *nameLock) (*blocker, *hold, error) {
	r.rejoin(g)
	q, err := g.queueOf(r.ticket)
	if err != nil {
		return nil, nil, err
	}
	defer q.close()
	if r.file == nil { // a request with a ticket was checked when it got it
		if err := q.check(); err != nil {
			return nil, nil, err
		}
	}
	o, err := r.find(q)
	if err != nil {
		return nil, nil, err
	}
	var h *hold
	if o == nil {
		if h, err = r.take(g, q); errors.Is(err, errBusy) {
			o, err = r.foreign(g, q), nil
		}
	}
	if o != nil && r.Wait && r.file == nil {
		err = r.join(g, q)
	}
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return o, h, nil
}

// find returns the blocker according to the tickets and the minimum hold.
func (r *request) find(q *queue) (*blocker, error) {
	until, err := q.lock.notBefore()
	if err != nil {
		return nil, err
	}
	o, err := q.obstacle(&r.engine.waker)
	if err != nil || until.IsZero() {
		return o, err
	}
	if o == nil { // only the minimum hold is in the way
		o = q.behind(&blocker{until: until}, nil)
	}
	o.held.Until = until
	return o, nil
}

// foreign returns the blocker for a lock that is held without a ticket: by flock(1), by a child
// that outlived its parent, or by a broken holder that has not released the lock yet.
func (r *request) foreign(g *nameLock, q *queue) *blocker {
	o := q.behind(&blocker{busy: true}, nil)
	if r.Wait {
		return o // it polls; searching all processes would take too long under the directory lock
	}
	if f, err := g.openFile(lockFile, os.O_RDONLY); err == nil {
		defer f.Close()
		if pids := g.waits.flockOwners(f); len(pids) > 0 {
			o.held.Identity = driver.Identity{Host: machine(), PID: pids[0], Note: "not by fencelock"}
		}
	}
	return o
}

// take turns the request into a holder after the tickets allow it. errBusy means that the lock file
// is locked. After an error nothing remains locked.
func (r *request) take(g *nameLock, q *queue) (_ *hold, err error) {
	lock, err := g.lockFor(r.Mode)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = flock(lock, unlock)
			lock.Close()
			_ = settle(r.fresh...)
			r.fresh = nil
			if r.closed > 0 {
				r.reopen(g)
			}
		}
	}()
	done := r.record
	if done.Token, err = r.number(g); err != nil {
		return nil, err
	}
	done.Since = time.Now()
	if err = r.settleIn(g, q, &done); err != nil {
		return nil, err
	}
	h := &hold{
		holds: &r.engine.holds, name: r.Name, dir: g.path, base: r.ticket.fileName(), lock: lock, file: r.file, lost: r.OnLost,
		grant: driver.Grant{Owner: r.ticket.owner, Token: done.Token, Floor: q.floor(done.Token), Sent: done.Since, TTL: r.TTL},
	}
	r.file = nil // the hold owns it now
	r.engine.holds.keep(h)
	return h, nil
}

// number issues the token and stores the minimum hold. Neither is durable until confirm.
func (r *request) number(g *nameLock) (token int64, err error) {
	token, f, err := g.issue()
	r.fresh = []*os.File{f}
	if err == nil && r.MinHold > 0 {
		r.closed = time.Now().Add(r.MinHold).UnixMicro()
		f, err = g.writeNumber(notBeforeFile, r.closed)
		r.fresh = append(r.fresh, f)
	}
	return token, err
}

// settleIn turns the request's ticket into a holding one. A new ticket is created as such. A
// waiting ticket gets its new record and is then renamed, so that the token of a holding ticket can
// always be read.
func (r *request) settleIn(g *nameLock, q *queue, done *record) (err error) {
	t := r.ticket
	t.held = true
	if r.file == nil {
		t.seq = q.last + 1
		if err := g.mark(); err != nil {
			return err
		}
		if r.file, err = g.createTicket(t, done); err != nil {
			return err
		}
		r.ticket = t
		r.engine.waker.add(t.owner, nil)
		return nil
	}
	if err := writeRecord(r.file, done); err != nil {
		return err
	}
	if err := g.rename(r.ticket.fileName(), t.fileName()); err != nil {
		return err
	}
	removeFIFO(g.folder, t.owner, r.fifo)
	r.ticket, r.fifo = t, nil
	return nil
}

// join creates the request's ticket at the end of the queue, with a FIFO. First the name is marked
// as used and the FIFO is created, so that a process that sees the ticket finds both.
func (r *request) join(g *nameLock, q *queue) error {
	if err := g.mark(); err != nil {
		return err
	}
	t := r.ticket
	t.seq = q.last + 1
	fifo := r.engine.waker.createFIFO(g.folder, t.owner)
	f, err := g.createTicket(t, &r.record)
	if err != nil {
		removeFIFO(g.folder, t.owner, fifo)
		return err
	}
	r.ticket, r.file, r.fifo = t, f, fifo
	r.engine.waker.add(t.owner, r.wake)
	if fifo != nil {
		go forward(fifo, r.wake)
	}
	return nil
}

// rejoin drops a ticket that somebody has removed. A new one is created at the end of the queue.
func (r *request) rejoin(g *nameLock) {
	if r.file != nil && isGone(r.file, g.pathOf(r.ticket.fileName())) {
		r.quit()
	}
}

// quit removes the waiting ticket, if there is one. It needs no directory lock: only this goroutine
// could have turned the ticket into a holding one.
func (r *request) quit() {
	if r.file == nil {
		return
	}
	d, err := r.engine.dir.open(encode(r.Name))
	if err == nil {
		defer d.close()
		_ = d.remove(r.ticket.fileName()) // if it fails, the next process that finds it dead removes it
	}
	_ = flock(r.file, unlock)
	r.file.Close()
	if err == nil {
		removeFIFO(d, r.ticket.owner, r.fifo)
	} else {
		r.fifo.Close()
	}
	r.engine.waker.drop(r.ticket.owner)
	if err == nil {
		r.engine.waker.wakeIn(d, r.ticket.seq)
	}
	r.file, r.fifo, r.ticket.seq = nil, nil, noPlace
}
