package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// letGoAfter is how long the engine keeps the lock of a broken holder, so that its work can stop
// before another holder starts.
const letGoAfter = time.Second

// holds are the acquisitions of this process in one directory. A lost hold stays among them until
// its Release, which then returns ErrNotHeld.
type holds struct {
	dir     *directory
	waker   *waker
	watcher watcher // reports changes of the holds' files

	mu      sync.Mutex // guards byOwner
	byOwner map[string]*hold
}

// keep registers a hold and starts to watch its files.
func (s *holds) keep(h *hold) {
	s.mu.Lock()
	s.byOwner[h.grant.Owner] = h
	s.mu.Unlock()
	h.sub = s.watcher.subscribe(h.dir, func(base string) {
		if base == "" || base == lockFile || base == h.base {
			h.check()
		}
	})
}

// drop removes a hold and returns it, nil if there is none of that owner.
func (s *holds) drop(owner string) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[owner]
	delete(s.byOwner, owner)
	return h
}

// find returns the hold of a lease, nil if there is none.
func (s *holds) find(l driver.Lease) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[l.Owner]
	if h == nil || h.name != l.Name || h.grant.Token != l.Token {
		return nil
	}
	return h
}

// A hold is one acquisition. It is valid as long as its ticket and the lock file are still the ones
// at their paths, and both are locked.
type hold struct {
	holds *holds
	name  string
	dir   string
	base  string   // the ticket's file name
	lock  *os.File // the lock file, locked
	file  *os.File // the ticket's
	grant driver.Grant
	lost  func(cause error)
	sub   *subscription

	mu           sync.Mutex // guards lossReported, inherited, closed
	lossReported bool       // the holder was notified that it has lost the lock
	inherited    bool       // a child may have the descriptors too
	closed       bool       // lock and ticket are released
}

// pathOf returns the path of a file in the name's folder.
func (h *hold) pathOf(base string) string { return filepath.Join(h.dir, base) }

// standing returns why the hold is no longer valid, nil if it is: its ticket and lock file must be
// the ones at their paths. A folder that is temporarily inaccessible does not lose the lock.
func (h *hold) standing() error {
	switch {
	case isGone(h.file, h.pathOf(h.base)):
		if _, end, err := readRecord(h.file); err == nil && end.End == "broken" {
			return &brokenError{end}
		}
		return fmt.Errorf("%w: its ticket in %q was removed", driver.ErrLost, h.dir)
	case isGone(h.lock, h.pathOf(lockFile)):
		return fmt.Errorf("%w: %q was removed or replaced", driver.ErrLost, h.pathOf(lockFile))
	}
	return nil
}

// A brokenError is the cause of a loss by Break, with the ending of the ticket.
type brokenError struct{ ending }

func (e *brokenError) Error() string {
	return fmt.Sprintf("%v: broken by %s (%s)", driver.ErrLost, e.By, e.Reason)
}

func (e *brokenError) Unwrap() error { return driver.ErrBroken }

// check notifies the holder, once, if the hold is no longer valid. A broken hold releases the lock
// a little later. One whose files were damaged keeps the rest of its lock, since that still
// excludes others.
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
			h.holds.waker.wake(h.name, 0)
		})
	}
}

// notice returns the cause of a loss to its first caller only: events and polls may find it at the
// same time.
func (h *hold) notice() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lossReported || h.closed {
		return nil
	}
	cause := h.standing()
	h.lossReported = cause != nil
	return cause
}

// stands reports whether the hold is valid.
func (h *hold) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && !h.lossReported && h.standing() == nil
}

// inherit returns duplicates of the descriptors that keep the lock. It is atomic: after a release
// there is nothing to inherit, and a later release does not unlock.
func (h *hold) inherit() ([]*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.lossReported || h.standing() != nil {
		return nil, driver.ErrNotHeld
	}
	lock, err := duplicate(h.lock)
	if err != nil {
		return nil, err
	}
	file, err := duplicate(h.file)
	if err != nil {
		lock.Close()
		return nil, err
	}
	h.inherited = true
	return []*os.File{lock, file}, nil
}

// letGo releases the lock and the ticket, once. Unless a child has inherited them, it unlocks them
// first, because a process forked meanwhile may have duplicates.
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

// release ends the hold. The ticket is removed last, so that a waiter that is woken by this finds
// the lock free. It returns driver.ErrNotHeld if the hold has ended otherwise, but releases what is
// left of it.
func (h *hold) release() error {
	h.holds.watcher.unsubscribe(h.sub)
	h.mu.Lock()
	gone := h.closed || h.standing() != nil
	h.lossReported = true // a pending event must not report a loss
	inherited := h.inherited
	d, err := h.holds.dir.open(encode(h.name))
	defer d.close()
	if !h.closed && !inherited {
		if !gone {
			appendEnding(h.file, ending{End: "released"})
		}
		_ = flock(h.lock, unlock)
		if err == nil {
			err = d.remove(h.base)
		}
		gone = gone || errors.Is(err, fs.ErrNotExist) // broken at the same moment
	}
	h.mu.Unlock()
	h.letGo()
	if !gone && inherited && d != nil {
		h.leave(d)
	}
	h.holds.waker.drop(h.grant.Owner)
	if d != nil {
		h.holds.waker.wakeIn(d, 0)
	}
	if gone {
		return fmt.Errorf("release %q: %w", h.name, driver.ErrNotHeld)
	}
	return nil
}

// leave removes the ticket of a hold that children inherited, unless one of them still keeps it
// locked. Then the ticket stays as long as they run.
func (h *hold) leave(d *folder) {
	f, err := d.openFile(h.base, os.O_RDWR)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, lockShared) == nil {
		appendEnding(f, ending{End: "released"})
		_ = d.remove(h.base)
	}
}
