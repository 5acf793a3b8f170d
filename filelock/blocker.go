package filelock

import (
	"errors"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How often a waiter polls what is in its way. It is notified of most changes. The exceptions are a
// process that freezes, a child that outlives the holder, and a lock held by flock(1).
const (
	lookOften  = 100 * time.Millisecond // without a notification
	lookSeldom = time.Second            // with one
)

// A blocker is why a request is not granted yet, and what to check until it may be.
type blocker struct {
	held        *driver.HeldError
	position    int
	until       time.Time // end of the minimum hold that is in the way
	busy        bool      // the lock file is locked by a process without a ticket
	any         bool      // the removal of any ticket, or a new limit, may clear the way
	override    int       // with any: the limit set by Resize, 0 for none
	owner       string    // of the one ticket in the way, unless any
	waiting     string    // path of that ticket while it waits; empty if it holds
	files       []*os.File
	paused      func() bool // reports whether the waiter in the way is frozen; nil for a holder
	endNotified bool        // the end of the holder's process will be notified
	process     *os.File    // the pidfd for that; nil if the holder is in this process
}

// close closes the blocker's tickets. o may be nil.
func (o *blocker) close() {
	if o == nil {
		return
	}
	for _, f := range o.files {
		f.Close()
	}
	o.files = nil
	o.process.Close()
}

// attend signals wake when the process of the only holder in the way ends. A holder of this
// process ends with a release, which signals by itself.
func (o *blocker) attend(k *waker, wake chan<- struct{}) {
	if o.owner == "" || o.waiting != "" {
		return
	}
	if _, own := k.of(o.owner); own {
		o.endNotified = true
		return
	}
	if r, _, err := readRecord(o.files[0]); err == nil && r.Machine == machine() && !k.polls {
		o.process = watchProcess(r.Process, wake)
		o.endNotified = o.process != nil
	}
}

// cleared reports whether a ticket in the way has died, was removed, has frozen, or no longer
// waits.
func (o *blocker) cleared() bool {
	if o.waiting != "" && isGone(o.files[0], o.waiting) {
		return true
	}
	for _, f := range o.files {
		if unlinked(f) || !errors.Is(flock(f, lockShared), errBusy) {
			return true
		}
	}
	return o.paused != nil && sinceStamp(o.files[0]) > 2*lookSeldom && o.paused()
}

// staleAfter is the age of its last stamp at which a waiting ticket counts as frozen and is
// skipped.
const staleAfter = 5 * time.Second

// isPaused reports whether a waiter is stopped or has ceased to stamp its ticket.
func isPaused(f *os.File, r record) bool {
	age := sinceStamp(f)
	return age > staleAfter || age > 0 && r.Machine == machine() && stopped(r.Process)
}

// sinceStamp returns the age of a waiting ticket's stamp. A stamp in the future means that the
// clock was set back.
func sinceStamp(f *os.File) time.Duration {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return max(1, time.Since(info.ModTime()).Abs())
}

// machine returns the name of this host for tickets.
func machine() string {
	host, _ := os.Hostname()
	return host
}
