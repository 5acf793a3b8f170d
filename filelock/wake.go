package filelock

import (
	"errors"
	"os"
	"path/filepath"
)

// wake rings for the first waiter behind a place in the queue: something has
// happened that may have cleared its way. Whoever is dead or frozen is passed
// over, so that a release costs the same however many wait.
func (e *Engine) wake(dir string, behind int64) {
	all, _, _ := listTickets(dir)
	for _, t := range all {
		if t.held || t.seq <= behind {
			continue
		}
		if bell, own := e.bell(t.owner); own {
			ringOwn(bell)
			return
		}
		if wakeOther(dir, t) {
			return
		}
	}
}

// ringOwn wakes a waiter of this process; it never blocks.
func ringOwn(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // rung already
	}
}

// wakeOther rings for a waiter of another process, and reports whether that one
// is alive and awake.
func wakeOther(dir string, t ticket) bool {
	f, err := os.OpenFile(filepath.Join(dir, t.base()), os.O_RDONLY|nonblock, 0)
	if err != nil || !errors.Is(flock(f, lockShared), errBusy) {
		f.Close()
		return false
	}
	defer f.Close()
	ring(filepath.Join(dir, bellOf(t.owner)))
	r, _, _ := readRecord(f)
	return !isPaused(f, r)
}
