package memlock

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// store is what a server would be. Nothing runs in it but its clients' calls and
// one timer per name: a timer lives until its name is free, and nobody waits for it to
// stop.
type store struct {
	maxTTL time.Duration // of the Config; 0 means no bound

	mu       sync.Mutex // guards all below, everything reached from it, and every client
	locks    map[string]*lock
	last     int64 // the last number that mint returned
	records  map[string]record
	swaps    uint64 // how many records were ever written
	rates    gcra.Table
	watchers []*watcher
	after    []func()      // callbacks to run once mu is open again
	hung     chan struct{} // not nil while nothing is answered; closed to go on
}

// errHung is what a waiter has heard of a store that hangs.
var errHung = errors.New("no answer")

// do runs f with the mutex held.
func (s *store) do(f func(now time.Time)) {
	s.mu.Lock()
	f(time.Now())
	s.unlock()
}

// unlock opens the mutex and runs the callbacks that fell due under it: they may call
// the engine.
func (s *store) unlock() {
	after := s.after
	s.after = nil
	s.mu.Unlock()
	callAll(after)
}

// callAll calls all of fns, even if some panic: the others have nobody else to call them.
func callAll(fns []func()) {
	if len(fns) > 0 {
		defer callAll(fns[1:])
		fns[0]()
	}
}

// with runs f on a name, which is handed over before, so that f sees it as it is now,
// and again after, since f may have let somebody in. A name about which nothing is left
// to know is forgotten: names that are used once cost nothing afterwards.
func (s *store) with(name string, now time.Time, f func(l *lock) error) error {
	l := s.locks[name]
	if l == nil {
		l = &lock{store: s, name: name}
		s.locks[name] = l
	}
	l.handOver(now)
	err := f(l)
	l.handOver(now)
	if !l.arm(now) && len(l.queue) == 0 && l.limit == 0 {
		delete(s.locks, name)
	}
	return err
}

// each runs f on the names that q chooses and the store has not forgotten, in order.
func (s *store) each(q driver.Query, now time.Time, f func(l *lock)) {
	for _, name := range slices.Sorted(maps.Keys(s.locks)) {
		if q.Matches(name) {
			_ = s.with(name, now, func(l *lock) error { f(l); return nil })
		}
	}
}

// mint returns a number greater than all before, of the order of the clock. Tokens of
// all names are such numbers, so none needs to be remembered when its name is forgotten.
func (s *store) mint(now time.Time) int64 {
	s.last = max(s.last+1, now.UnixMicro())
	return s.last
}

// watcher collects events for one Watch. Its queue has no bound, so that a slow
// watcher never holds up the store.
type watcher struct {
	query  driver.Query
	wake   bell           // rings when there is news
	events []driver.Event // not yet told; the store's mutex guards them
}

// emit queues an event for the watchers it concerns.
func (s *store) emit(kind driver.EventKind, c *claim, now time.Time) {
	for _, w := range s.watchers {
		if w.query.Matches(c.req.Name) {
			w.events = append(w.events, c.event(kind, now))
			w.wake.ring()
		}
	}
}
