package filelock

import (
	"errors"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// How often a waiter looks by itself at what is in its way. It is told of what concerns
// it, with few exceptions: a process that freezes, a child that outlives the holder, a
// lock held by flock(1).
const (
	lookOften  = 100 * time.Millisecond // where it is not told
	lookSeldom = time.Second            // where it is
)

// A blocker is why a request is not granted now, and what to look at until
// it may be.
type blocker struct {
	held     *driver.HeldError
	position int
	until    time.Time // a minimum hold is in the way, until then
	busy     bool      // the lock itself is held, by somebody without a ticket
	any      bool      // any ticket that goes, or a new limit, may clear the way
	override int       // with any: the limit that Resize had set, 0 for none
	owner    string    // of the one ticket in the way, unless any
	waiting  string    // the path of that ticket if it waits, until it holds; else empty
	files    []*os.File
	paused   func() bool // the waiter in the way has frozen; nil for a holder
	told     bool        // the end of the holder's process is told
	process  *os.File    // through which it is told; nil if it is this one's
}

// close ends the watch over the blocker's tickets. A nil blocker has none.
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

// attend makes bell ring when the process of the one holder in the way ends. One of this
// process ends with a release, which rings.
func (o *blocker) attend(bells *bells, bell chan<- struct{}) {
	if o.owner == "" || o.waiting != "" {
		return
	}
	if _, own := bells.of(o.owner); own {
		o.told = true
		return
	}
	if r, _, err := readRecord(o.files[0]); err == nil && r.Machine == machine() && !bells.deaf {
		o.process = watchProcess(r.Process, bell)
		o.told = o.process != nil
	}
}

// cleared reports whether a ticket in the way has died, was removed, has frozen, or
// does not wait any more.
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

// staleAfter is the age at which a waiting ticket that was not stamped again
// belongs to a frozen process and is passed over.
const staleAfter = 5 * time.Second

// isPaused reports whether a waiter is stopped, or does not stamp its ticket any
// more.
func isPaused(f *os.File, r record) bool {
	age := sinceStamp(f)
	return age > staleAfter || age > 0 && r.Machine == machine() && stopped(r.Process)
}

// sinceStamp returns how old the stamp of a waiting ticket is. A stamp in the
// future is one before the clock was set back.
func sinceStamp(f *os.File) time.Duration {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return max(1, time.Since(info.ModTime()).Abs())
}

// machine names this host in tickets.
func machine() string {
	host, _ := os.Hostname()
	return host
}
