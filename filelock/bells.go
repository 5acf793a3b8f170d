package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// bells wake the waiters of a directory: a waiter of this process through a channel, a waiter of
// another process through a FIFO beside its ticket.
type bells struct {
	deaf bool // for tests: receives no notifications of other processes; set before the first use

	mu  sync.Mutex               // guards own
	own map[string]chan struct{} // of all tickets of this process, by owner; nil for a holding one
}

// of returns the channel that wakes a waiter of this process. ok is false for other processes.
func (b *bells) of(owner string) (bell chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bell, ok = b.own[owner]
	return bell, ok
}

// add registers a ticket of this process.
func (b *bells) add(owner string, bell chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own[owner] = bell
}

// drop unregisters a ticket of this process.
func (b *bells) drop(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, owner)
}

// wake notifies the first waiter behind a place in the queue, because its way may be clear now. It
// skips dead and frozen waiters. A release therefore costs the same however many wait.
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

// ringOwn wakes a waiter of this process. It does not block.
func ringOwn(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default: // already signalled
	}
}

// wakeOther notifies a waiter of another process, and reports whether it is alive and not frozen. A
// frozen one is notified too, so that it reacts when it is resumed, but the next in line need not
// wait for that.
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
