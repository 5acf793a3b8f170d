package idempotent

import (
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock"
)

// flights are the keys that callers in this process wait for. One caller of a key asks the engine
// or runs the job, and the others wait for it. So they take only one place in the queue of the
// lock.
type flights struct {
	mu  sync.Mutex // guards all
	all map[string]*flight
}

// flight is shared by the callers of one key.
type flight struct {
	flights *flights
	id      string
	held    atomic.Pointer[fencelock.HeldError] // who runs the job; nil if unknown

	landed chan struct{} // closed by land; the fields below do not change after that
	last   record        // the record as the first caller knew it; without a version if unknown
	err    error         // an error of the engine, for all callers
}

// join returns the flight of a key, and whether the caller is the first. The first must call land.
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

// land wakes the waiting callers. Only the first call has an effect.
func (f *flight) land(last record, err error) {
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	if f.flights.all[f.id] == f {
		delete(f.flights.all, f.id)
		f.last, f.err = last, err
		close(f.landed)
	}
}
