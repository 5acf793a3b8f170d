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

// letGoAfter is how long the engine keeps the lock of a broken holder, so that
// its work can end before somebody else starts.
const letGoAfter = time.Second

// holds are the standing acquisitions of this process in one directory. A hold that is lost
// stays among them until its Release, which then says so.
type holds struct {
	bells   *bells
	watcher watcher // tells the holds what happens to their files

	mu      sync.Mutex // guards byOwner
	byOwner map[string]*hold
}

// keep registers a hold and starts to watch over it.
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

// drop forgets a hold; it returns nil if there is none of that owner.
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

// A hold is one standing acquisition. It stands as long as its ticket and the lock file
// are the ones that everybody else sees, and both are locked.
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

	mu        sync.Mutex // guards told, inherited, closed
	told      bool       // the holder knows that it has lost
	inherited bool       // a child may have the descriptors too
	closed    bool       // lock and ticket are let go
}

// pathOf returns the path of a file beside the lock.
func (h *hold) pathOf(base string) string { return filepath.Join(h.dir, base) }

// standing returns why the hold does not stand any more, nil if it does: its
// ticket and its lock are still the ones everybody else sees. A directory that
// cannot be looked at for a while loses no lock.
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

// A brokenError is the cause of a loss by Break, as the ending of the ticket tells it.
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
			h.holds.bells.wake(h.dir, 0)
		})
	}
}

// notice returns the cause of a loss to whoever finds it first: events and looks may come
// at the same time.
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

// stands reports whether the hold is still good.
func (h *hold) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && !h.told && h.standing() == nil
}

// inherit returns duplicates of what keeps the lock, for a child. It is one step: a
// release before it leaves nothing to inherit, one after it unlocks nothing.
func (h *hold) inherit() ([]*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.told || h.standing() != nil {
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

// letGo frees the lock and the ticket, once. Without a child that inherited them
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
// finds the lock free. A hold that has ended otherwise is driver.ErrNotHeld, but what is
// left of it is let go all the same.
func (h *hold) release() error {
	h.holds.watcher.unsubscribe(h.sub)
	h.mu.Lock()
	gone := h.closed || h.standing() != nil
	h.told = true // an event still under way must not call this a loss
	inherited := h.inherited
	if !h.closed && !inherited {
		if !gone {
			appendEnding(h.file, ending{End: "released"})
		}
		_ = flock(h.lock, unlock)
		err := os.Remove(h.pathOf(h.base))
		gone = gone || errors.Is(err, fs.ErrNotExist) // broken in the same instant
	}
	h.mu.Unlock()
	h.letGo()
	if !gone && inherited {
		h.leave()
	}
	h.holds.bells.drop(h.grant.Owner)
	h.holds.bells.wake(h.dir, 0)
	if gone {
		return fmt.Errorf("release %q: %w", h.name, driver.ErrNotHeld)
	}
	return nil
}

// leave removes the ticket of a hold that children inherited, unless one of
// them still keeps it: its flock tells, and then the ticket stays for as long as they live.
func (h *hold) leave() {
	f, err := os.OpenFile(h.pathOf(h.base), os.O_RDWR|nonblock, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, lockShared) == nil {
		appendEnding(f, ending{End: "released"})
		os.Remove(h.pathOf(h.base))
	}
}
