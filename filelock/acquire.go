package filelock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
)

// A request is one Acquire under way. One goroutine uses it.
type request struct {
	driver.Request
	engine *Engine
	ticket ticket
	record record
	file   *os.File      // the ticket's; nil while there is none
	dir    string        // where the ticket is
	bell   chan struct{} // rings when something may have cleared the way
	fifo   *os.File      // through which other processes ring; nil if they cannot
	heard  driver.Waited

	told    int       // the position last told to Waiting
	counted time.Time // when the directory had changed last before the positions were counted
}

// Acquire makes one acquisition; see [driver.Engine]. It returns ErrUnavailable
// or ErrConfig for whatever the file system refuses, and leaves nothing behind
// then.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(e.Traits()); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := e.ready(true); err != nil {
		return driver.Grant{}, err
	}
	e.maybeSweep()
	r, err := e.newRequest(req)
	if err != nil {
		return driver.Grant{}, err
	}
	defer r.quit()
	o, grant, err := r.attempt(ctx)
	for req.Wait && errors.Is(err, errGate) {
		r.heard.Unavailable(ctx, err)
		o, grant, err = r.attempt(ctx)
	}
	if o != nil && err == nil && !req.Wait {
		o.close()
		return driver.Grant{}, o.held
	}
	if o != nil && err == nil {
		r.heard.Held(o.held)
		grant, err = r.wait(ctx, o)
	}
	return r.answer(ctx, grant, err)
}

func (e *Engine) newRequest(req driver.Request) (*request, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("%w: no owner: %w", driver.ErrUnavailable, err)
	}
	r := &request{Request: req, engine: e, bell: make(chan struct{}, 1)}
	r.ticket = newTicket(req, id.String())
	r.record = record{
		Owner: r.ticket.owner, Host: req.Host, PID: req.PID, Note: req.Note,
		Since: time.Now(), Mode: req.Mode.String(), Limit: req.Limit, Weight: r.ticket.weight,
		Machine: machine(), Process: os.Getpid(),
	}
	return r, nil
}

// answer turns what came out into what the caller reads.
func (r *request) answer(ctx context.Context, grant driver.Grant, err error) (driver.Grant, error) {
	switch {
	case err == nil:
		return grant, nil
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrHeld):
		return driver.Grant{}, err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && r.Wait:
		return driver.Grant{}, r.heard.Ended(ctx, err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return driver.Grant{}, fmt.Errorf("acquire %q: %w", r.Name, err)
	}
	return driver.Grant{}, r.heard.Ended(ctx, r.engine.unavailable(err))
}

// attempt goes through the gate once: it ends with a grant, with what is in
// the way, or with an error. A request that waits has joined the queue then.
func (r *request) attempt(ctx context.Context) (*blocker, driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.Grant{}, err
	}
	g, err := r.engine.enter(ctx, r.Name, true)
	if err != nil {
		return nil, driver.Grant{}, err
	}
	o, h, err := r.decide(g)
	g.leave()
	if o != nil || err != nil {
		return o, driver.Grant{}, err
	}
	if r.Mode == driver.Shared {
		r.engine.wake(g.dir, r.ticket.seq) // who is behind may hold beside us
	}
	return nil, h.grant, h.confirm(ctx)
}

// decide is attempt inside the gate.
func (r *request) decide(g *nameLock) (*blocker, *hold, error) {
	r.rejoin(g)
	q, err := g.line(r.ticket)
	if err != nil {
		return nil, nil, err
	}
	defer q.close()
	if r.file == nil {
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

// find returns what is in the way before the lock itself is tried.
func (r *request) find(q *queue) (*blocker, error) {
	notBefore, _, err := q.gate.readNumber("not-before")
	if err != nil {
		return nil, err
	}
	o, err := q.obstacle()
	if err != nil {
		return nil, err
	}
	until := time.UnixMicro(notBefore)
	if !until.After(time.Now()) {
		return o, nil
	}
	if o == nil {
		o = q.behind(&blocker{until: until}, nil)
	}
	o.held.Until = until
	return o, nil
}

// foreign is the blocker of a lock that is held without a ticket: by flock(1),
// by a child that outlived its parent, or by a broken holder that has not let
// go yet.
func (r *request) foreign(g *nameLock, q *queue) *blocker {
	o := q.behind(&blocker{busy: true}, nil)
	if r.Wait {
		return o // will look often, and to search all processes would keep the gate closed
	}
	if f, err := g.openFile("lock", os.O_RDONLY); err == nil {
		defer f.Close()
		if pids, _ := flockOwners(f); len(pids) > 0 {
			o.held.Identity = driver.Identity{Host: machine(), PID: pids[0], Note: "not by fencelock"}
		}
	}
	return o
}

// join makes the request's ticket, at the end of the queue, with a bell.
func (r *request) join(g *nameLock, q *queue) error {
	if err := g.mark(); err != nil {
		return err
	}
	t := r.ticket
	t.seq = q.last + 1
	fifo := g.hang(t.owner)
	f, err := g.createTicket(t, &r.record)
	if err != nil {
		g.unhang(t.owner, fifo)
		return err
	}
	r.ticket, r.file, r.fifo, r.dir = t, f, fifo, g.dir
	r.engine.setOwn(t.owner, r.bell)
	if fifo != nil {
		go listen(fifo, r.bell)
	}
	return nil
}

// rejoin forgets a ticket that somebody has removed: it will be made again, at
// the end of the queue.
func (r *request) rejoin(g *nameLock) {
	if r.file != nil && isGone(r.file, g.path(r.ticket.base())) {
		r.quit()
	}
}

// quit removes the waiting ticket, if there is one. It needs no gate: only this
// very goroutine could have turned the ticket into a held one.
func (r *request) quit() {
	if r.file == nil {
		return
	}
	_ = os.Remove(filepath.Join(r.dir, r.ticket.base())) // or whoever finds it dead does
	_ = flock(r.file, unlock)
	r.file.Close()
	if r.fifo != nil {
		_ = os.Remove(filepath.Join(r.dir, bellOf(r.ticket.owner)))
		r.fifo.Close()
	}
	r.engine.dropOwn(r.ticket.owner)
	r.engine.wake(r.dir, r.ticket.seq)
	r.file, r.fifo, r.ticket.seq = nil, nil, math.MaxInt64
}
