package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fencelock/fencelock/driver"
)

// letGo frees the lock and the ticket. Without a child that inherited them
// they are unlocked first: a process forked meanwhile may have duplicates.
func (h *hold) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	if !h.inherited {
		_ = flock(h.lock, unlock)
		_ = flock(h.file, unlock)
	}
	h.lock.Close()
	h.file.Close()
}

// release ends the hold. The ticket goes last, so that whoever is woken by that
// finds the lock free.
func (h *hold) release() error {
	h.engine.hub.unsubscribe(h.sub)
	h.mu.Lock()
	gone := h.closed || h.standing() != nil
	h.told = true // an event still under way must not call this a loss
	inherited := h.inherited
	if !h.closed && !inherited {
		if !gone {
			appendEnding(h.file, ending{End: "released"})
		}
		_ = flock(h.lock, unlock)
		err := os.Remove(h.path(h.base))
		gone = gone || errors.Is(err, fs.ErrNotExist) // broken in the same instant
	}
	h.mu.Unlock()
	h.letGo()
	if !gone && inherited {
		h.leave()
	}
	h.engine.dropOwn(h.grant.Owner)
	h.engine.wake(h.dir, 0)
	if gone {
		return fmt.Errorf("release %q: %w", h.name, driver.ErrNotHeld)
	}
	return nil
}

// leave removes the ticket of a hold that children inherited, unless one of
// them still keeps it.
func (h *hold) leave() {
	f, err := os.OpenFile(h.path(h.base), os.O_RDWR|nonblock, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, lockShared) == nil {
		appendEnding(f, ending{End: "released"})
		os.Remove(h.path(h.base))
	}
}

// Renew verifies acquisitions: for each nil, or ErrNotHeld. It extends nothing,
// since nothing expires here.
func (e *Engine) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		h := e.find(l)
		if h == nil || !h.stands() {
			errs[i] = fmt.Errorf("renew %q: %w", l.Name, driver.ErrNotHeld)
		}
	}
	return errs
}

// stands reports whether the hold is still good.
func (h *hold) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && !h.told && h.standing() == nil
}

// Release ends an acquisition. It does not wait for others and works on a full
// disk. After Inherit, a child that still lives keeps the lock.
func (e *Engine) Release(_ context.Context, l driver.Lease) error {
	h := e.find(l)
	if h == nil || e.drop(l.Owner) == nil {
		return fmt.Errorf("release %q: %w", l.Name, driver.ErrNotHeld)
	}
	return h.release()
}

// Inherit returns duplicates of the descriptors an acquisition lives in. A child
// process that gets them (exec.Cmd.ExtraFiles) keeps the lock alive for as long
// as it lives. The caller closes them once the child has started.
func (e *Engine) Inherit(l driver.Lease) ([]*os.File, error) {
	h := e.find(l)
	if h == nil || !h.stands() {
		return nil, fmt.Errorf("inherit %q: %w", l.Name, driver.ErrNotHeld)
	}
	lock, err := duplicate(h.lock)
	if err != nil {
		return nil, e.unavailable(err)
	}
	file, err := duplicate(h.file)
	if err != nil {
		lock.Close()
		return nil, e.unavailable(err)
	}
	h.mu.Lock()
	h.inherited = true
	h.mu.Unlock()
	return []*os.File{lock, file}, nil
}
