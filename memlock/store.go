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

// store plays the role of a server. It has no goroutines, only one timer per name in use.
type store struct {
	maxTTL time.Duration // Config.MaxTTL; 0 means no limit

	mu       sync.Mutex // guards all below, everything reached from it, and every client
	locks    map[string]*lock
	last     int64 // the last number that was issued
	records  map[string]record
	swaps    uint64        // number of swaps so far
	swapped  chan struct{} // closed by the next swap
	rates    gcra.Table
	watchers []*watcher
	after    []func()      // callbacks to run after mu is released
	hung     chan struct{} // not nil while calls are unanswered; closed by Resume
}

// errHung is what waiters learn from a store that does not answer.
var errHung = errors.New("no answer")

// do runs f with the mutex held.
func (s *store) do(f func(now time.Time)) {
	s.mu.Lock()
	f(time.Now())
	s.unlock()
}

// unlock releases the mutex and then runs the callbacks that became due, because they may call the
// engine.
func (s *store) unlock() {
	after := s.after
	s.after = nil
	s.mu.Unlock()
	callAll(after)
}

// callAll calls all of fns, even if some panic.
func callAll(fns []func()) {
	if len(fns) > 0 {
		defer callAll(fns[1:])
		fns[0]()
	}
}

// with runs f on the lock of a name. It hands the lock over before f, so that f sees the current
// state, and after it. A lock without any state is deleted, so that names that are no longer used
// need no memory.
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

// each runs f on the existing locks matching q, in order.
func (s *store) each(q driver.Query, now time.Time, f func(l *lock)) {
	for _, name := range slices.Sorted(maps.Keys(s.locks)) {
		if q.Matches(name) {
			_ = s.with(name, now, func(l *lock) error { f(l); return nil })
		}
	}
}

// issue returns a number greater than all earlier ones and not below the clock. All names take
// their tokens from it, so no token needs to be kept when a name's lock is deleted.
func (s *store) issue(now time.Time) int64 {
	s.last = max(s.last+1, now.UnixMicro())
	return s.last
}

// watcher collects events for one Watch. Its queue is unbounded, so that a slow watcher does not
// block the store.
type watcher struct {
	query  driver.Query
	wake   signal         // rings when there are new events
	events []driver.Event // not yet reported; guarded by the store's mutex
}

// emit adds an event to the matching watchers.
func (s *store) emit(kind driver.EventKind, c *claim, now time.Time) {
	for _, w := range s.watchers {
		if w.query.Matches(c.req.Name) {
			w.events = append(w.events, c.event(kind, now))
			w.wake.send()
		}
	}
}
