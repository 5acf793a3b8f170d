package idempotent

import (
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock"
)

// flights are the keys that callers of this process wait for. Of the callers of a key one
// asks the engine, or runs the job, and the others wait for it: a thousand of them take one
// place in the lock's queue.
type flights struct {
	mu  sync.Mutex // guards all
	all map[string]*flight
}

// flight is what the callers of one key wait for.
type flight struct {
	flights *flights
	id      string
	held    atomic.Pointer[fencelock.HeldError] // who runs the job; nil if that is not known yet

	landed chan struct{} // closed when the first caller is through; what follows stays as it is then
	last   record        // as that caller knew it; without a version if it did not
	err    error         // of the engine, and everybody's
}

// join returns the flight of a key, and whether the caller is the first: then it must call land.
func (f *flights) join(id string) (_ *flight, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.all[id]; one != nil {
		return one, false
	}
	one := &flight{flights: f, id: id, landed: make(chan struct{})}
	f.all[id] = one
	return one, true
}

// land tells those who wait. Only the first call counts.
func (f *flight) land(last record, err error) {
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	if f.flights.all[f.id] == f {
		delete(f.flights.all, f.id)
		f.last, f.err = last, err
		close(f.landed)
	}
}
