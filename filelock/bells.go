package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// bells are what wakes who waits in a directory: a waiter of this process through a
// channel, one of another through a FIFO beside its ticket.
type bells struct {
	deaf bool // for tests: hears of nothing that others do; set before the first use

	mu  sync.Mutex               // guards own
	own map[string]chan struct{} // of all tickets of this process, by owner; nil for one that holds
}

// of returns what wakes a waiter of this very process; ok is false for one of
// any other.
func (b *bells) of(owner string) (bell chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bell, ok = b.own[owner]
	return bell, ok
}

// add notes that a ticket of owner lives in this process.
func (b *bells) add(owner string, bell chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own[owner] = bell
}

// drop notes that a ticket of owner does not live in this process any more.
func (b *bells) drop(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, owner)
}

// wake rings for the first waiter behind a place in the queue: something has
// happened that may have cleared its way. Whoever is dead or frozen is passed
// over, so that a release costs the same however many wait.
func (b *bells) wake(dir string, behind int64) {
	all, _, _ := listTickets(dir)
	for _, t := range all {
		if t.held || t.seq <= behind {
			continue
		}
		if bell, own := b.of(t.owner); own {
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
// is alive and awake. A frozen one is rung for too: it has heard of it when it thaws, but
// the next in line need not wait for that.
func wakeOther(dir string, t ticket) bool {
	f, err := os.OpenFile(filepath.Join(dir, t.fileName()), os.O_RDONLY|nonblock, 0)
	if err != nil || !errors.Is(flock(f, lockShared), errBusy) {
		f.Close()
		return false
	}
	defer f.Close()
	ring(filepath.Join(dir, bellOf(t.owner)))
	r, _, _ := readRecord(f)
	return !isPaused(f, r)
}
