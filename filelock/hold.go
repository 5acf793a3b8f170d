package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// letGoAfter is how long the engine keeps the lock of a broken holder, so that
// its work can end before somebody else starts.
const letGoAfter = time.Second

// A hold is one standing acquisition.
type hold struct {
	engine *Engine
	name   string
	dir    string
	base   string // the ticket's file name
	lock   *os.File
	file   *os.File   // the ticket's
	fresh  []*os.File // numbers to be made durable before the grant is returned
	grant  driver.Grant
	lost   func(cause error)
	sub    *subscription

	mu        sync.Mutex // guards told, inherited, closed
	told      bool       // the holder knows that it has lost
	inherited bool       // a child may have the descriptors too
	closed    bool       // lock and ticket are let go
}

// take makes the request a holder; the tickets have said yes. errBusy means
// that the lock itself says no. Any error leaves nothing locked.
func (r *request) take(g *nameLock, q *queue) (_ *hold, err error) {
	h := &hold{engine: r.engine, name: r.Name, dir: g.dir, lost: r.OnLost}
	if h.lock, err = g.lock(r.Mode); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = flock(h.lock, unlock)
			h.lock.Close()
			_ = settle(h.fresh...)
		}
	}()
	if err = h.number(g, r.MinHold); err != nil {
		return nil, err
	}
	done := r.record
	done.Token, done.Since = h.grant.Token, time.Now()
	if err = r.settleIn(g, q, &done); err != nil {
		return nil, err
	}
	h.base, h.file = r.ticket.base(), r.file
	r.file = nil // the hold has it now
	h.grant.Owner, h.grant.Floor = r.ticket.owner, q.floor(h.grant.Token)
	h.grant.Sent, h.grant.TTL = done.Since, r.TTL
	r.engine.keep(h)
	return h, nil
}

// settleIn makes the request's ticket one that holds.
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
		r.ticket, r.dir = t, g.dir
		r.engine.setOwn(t.owner, nil)
		return nil
	}
	if err := writeRecord(r.file, done); err != nil {
		return err
	}
	if err := g.root.Rename(r.ticket.base(), t.base()); err != nil {
		return err
	}
	g.unhang(t.owner, r.fifo)
	r.ticket, r.fifo = t, nil
	return nil
}

// lock takes the lock file's own flock, through which flock(1) excludes us and
// we exclude it.
func (g *nameLock) lock(mode driver.Mode) (*os.File, error) {
	how := lockExclusive
	if mode == driver.Shared {
		how = lockShared
	}
	for range 10 { // somebody may be replacing the file
		f, err := g.openFile("lock", os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how); err != nil {
			f.Close()
			return nil, err
		}
		if !isGone(f, g.path("lock")) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%q is being replaced all the time", g.path("lock"))
}

// number mints the token and closes the name for the minimum hold.
func (h *hold) number(g *nameLock, atLeast time.Duration) error {
	token, f, err := g.mint()
	if err != nil {
		return err
	}
	h.grant.Token, h.fresh = token, append(h.fresh, f)
	if atLeast == 0 {
		return nil
	}
	f, err = g.writeNumber("not-before", time.Now().Add(atLeast).UnixMicro())
	h.fresh = append(h.fresh, f)
	return err
}

// mint returns a token greater than any before. It is durable once the file,
// which may be nil, has been settled. A name that is new, or comes again after it
// was removed, begins above the floor.
func (g *nameLock) mint() (int64, *os.File, error) {
	last, old, err := g.readNumber("token")
	if err == nil && !old {
		top := &nameLock{engine: g.engine, dir: g.engine.dir}
		defer top.close()
		if err = top.open(); err == nil {
			last, _, err = top.readNumber(floorFile)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	token := max(last+1, time.Now().UnixMicro())
	f, err := g.writeNumber("token", token)
	if err == nil && !old {
		err = syncDir(g.engine.dir) // whoever made the directory may not have yet
	}
	return token, f, err
}

// confirm makes the grant durable, and gives it back if that fails or if the
// request has ended in the same instant. It runs outside the gate, since a
// slow disk should stop nobody else.
func (h *hold) confirm(ctx context.Context) error {
	err := settle(h.fresh...)
	if err == nil && h.engine.hook != nil {
		h.engine.hook(h.grant.Token)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		h.engine.drop(h.grant.Owner)
		_ = h.release()
	}
	return err
}

// keep registers a hold and starts to watch over it.
func (e *Engine) keep(h *hold) {
	e.mu.Lock()
	e.holds[h.grant.Owner] = h
	e.mu.Unlock()
	h.sub = e.hub.subscribe(h.dir, func(base string) {
		if base == "" || base == "lock" || base == h.base {
			h.check()
		}
	})
}

// drop forgets a hold; it returns nil if there is none of that owner.
func (e *Engine) drop(owner string) *hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.holds[owner]
	delete(e.holds, owner)
	return h
}

// find returns the hold of a lease, nil if there is none.
func (e *Engine) find(l driver.Lease) *hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.holds[l.Owner]
	if h == nil || h.name != l.Name || h.grant.Token != l.Token {
		return nil
	}
	return h
}

// path returns the path of a file beside the lock.
func (h *hold) path(base string) string { return filepath.Join(h.dir, base) }

// standing returns why the hold does not stand any more, nil if it does: its
// ticket and its lock are still the ones everybody else sees. A directory that
// cannot be looked at for a while loses no lock.
func (h *hold) standing() error {
	switch {
	case isGone(h.file, h.path(h.base)):
		if _, end, err := readRecord(h.file); err == nil && end.End == "broken" {
			return &brokenError{end}
		}
		return fmt.Errorf("%w: its ticket in %q was removed", driver.ErrLost, h.dir)
	case isGone(h.lock, h.path("lock")):
		return fmt.Errorf("%w: %q was removed or replaced", driver.ErrLost, h.path("lock"))
	}
	return nil
}

// A brokenError is the cause of a loss by Break.
type brokenError struct{ ending }

func (e *brokenError) Error() string {
	return fmt.Sprintf("%v: broken by %s (%s)", driver.ErrLost, e.By, e.Reason)
}

func (e *brokenError) Unwrap() error { return driver.ErrLost }

// check tells the holder, once, if the hold does not stand any more. A hold
// that was broken lets go a little later; one that was damaged keeps what is
// left of its lock, since that still keeps others out.
func (h *hold) check() {
	cause := h.notice()
	if cause == nil {
		return
	}
	if h.lost != nil {
		h.lost(cause)
	}
	if _, broken := errors.AsType[*brokenError](cause); broken {
		time.AfterFunc(letGoAfter, func() {
			h.letGo()
			h.engine.wake(h.dir, 0)
		})
	}
}

// notice returns the cause of a loss to whoever finds it first.
func (h *hold) notice() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told || h.closed {
		return nil
	}
	cause := h.standing()
	h.told = cause != nil
	return cause
}
