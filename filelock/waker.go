package filelock

import (
	"errors"
	"os"
	"sync"
)

// waker wakes the waiters of a directory: a waiter of this process through a channel, a waiter of
// another process through a FIFO beside its ticket.
type waker struct {
	dir   *directory
	polls bool // for tests: receives no notifications of other processes; set before the first use

	mu  sync.Mutex               // guards own
	own map[string]chan struct{} // of all tickets of this process, by owner; nil for a holding one
}

// of returns the channel that wakes a waiter of this process. ok is false for other processes.
func (k *waker) of(owner string) (wake chan struct{}, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wake, ok = k.own[owner]
	return wake, ok
}

// add registers a ticket of this process.
func (k *waker) add(owner string, wake chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own[owner] = wake
}

// drop unregisters a ticket of this process.
func (k *waker) drop(owner string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.own, owner)
}

// wake is wakeIn for a name.
func (k *waker) wake(name string, behind int64) {
	if d, err := k.dir.open(encode(name)); err == nil {
		k.wakeIn(d, behind)
		d.close()
	}
}

// wakeIn notifies the first waiter behind a place in the queue, because it may be able to acquire the lock now. It
// skips dead and frozen waiters. A release therefore costs the same however many wait.
func (k *waker) wakeIn(d *folder, behind int64) {
	d.patience = &patience{leaseLimit} // for all waiters together
	all, _, _ := d.listTickets()
	for _, t := range all {
		if t.held || t.seq <= behind {
			continue
		}
		if wake, own := k.of(t.owner); own {
			signal(wake)
			return
		}
		if notifyOther(d, t) {
			return
		}
	}
}

// signal wakes a waiter of this process. It does not block.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // already signalled
	}
}

// notifyOther notifies a waiter of another process, and reports whether it is alive and not frozen. A
// frozen one is notified too, so that it reacts when it is resumed, but the next in line need not
// wait for that.
func notifyOther(d *folder, t ticket) bool {
	f, err := d.openFile(t.fileName(), os.O_RDONLY)
	if err != nil || !errors.Is(flock(f, lockShared), errBusy) {
		f.Close()
		return false
	}
	defer f.Close()
	d.notify(fifoOf(t.owner))
	r, _, _ := readRecord(f)
	return !isPaused(f, r)
}
