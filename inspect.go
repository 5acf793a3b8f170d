package fencelock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/watch"
)

// pollInterval is the polling interval of Watch for engines without notifications.
const pollInterval = 500 * time.Millisecond

// Status returns who holds name and who waits for it. The answer may be out of date when it
// arrives: show it to people, and do not use it in place of a lock. For an unused name only
// Status.Name is set. Status returns ErrUnsupported if the engine cannot list.
func (l *Locker) Status(ctx context.Context, name string) (Status, error) {
	if err := driver.CheckName(name); err != nil {
		return Status{}, err
	}
	list, err := l.list(ctx, driver.Query{Prefix: name, Exact: true})
	if err != nil || len(list) == 0 {
		return Status{Name: name}, err
	}
	return list[0], nil
}

// List returns all names with the prefix that are held, waited for or blocked by a minimum hold,
// ordered by name. An empty prefix means all names. Some engines list a name only after it was held
// for a moment; see their pages. If some names cannot be read, List may return the others together
// with an error. It returns ErrUnsupported if the engine cannot list.
func (l *Locker) List(ctx context.Context, prefix string) ([]Status, error) {
	return l.list(ctx, driver.Query{Prefix: prefix})
}

func (l *Locker) list(ctx context.Context, q driver.Query) ([]Status, error) {
	lister, ok := l.engine.(driver.Lister)
	if !ok {
		return nil, l.unsupported("list locks")
	}
	return lister.List(ctx, q)
}

// Watch returns the events of all names with the prefix. It starts with the current holders and
// waiters:
//
//	for ev, err := range locks.Watch(ctx, "invoice:") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(ev.Kind, ev.Name)
//	}
//
// The loop runs until ctx ends or the engine cannot be watched any more. Its last element is that
// error. Engines without notifications are polled every 500 ms; what begins and ends between two
// polls is not reported. The error is ErrUnsupported if the engine can neither notify nor list.
func (l *Locker) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return l.watch(ctx, driver.Query{Prefix: prefix})
}

// WatchName is [Locker.Watch] for one name. It is cheap on every engine that supports Watch.
func (l *Locker) WatchName(ctx context.Context, name string) iter.Seq2[Event, error] {
	return l.watch(ctx, driver.Query{Prefix: name, Exact: true})
}

func (l *Locker) watch(ctx context.Context, q driver.Query) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		left := false
		err := l.follow(ctx, q, func(ev Event) error {
			if left = !yield(ev, nil); left {
				return errLeft
			}
			return nil
		})
		if !left {
			yield(Event{}, err)
		}
	}
}

// errLeft ends an engine's watch after the caller has left the loop.
var errLeft = errors.New("the caller left the loop")

// follow calls fn for every event until ctx ends or fn returns an error.
func (l *Locker) follow(ctx context.Context, q driver.Query, fn func(Event) error) error {
	switch e := l.engine.(type) {
	case driver.Watcher:
		return e.Watch(ctx, q, fn)
	case driver.Lister:
		return watch.Poll(ctx, e, q, pollInterval, fn)
	}
	return l.unsupported("watch locks")
}

// checkName is the name that Check locks.
const checkName = "fencelock:check"

// Check tests that the engine is usable: it acquires a shared lock on the name "fencelock:check"
// and releases it. Any number of processes may do so at once. Use it at start-up and in readiness
// probes, with a ctx that has a deadline. It returns the errors of [Locker.TryAcquire] and
// [Lock.Release], except ErrHeld.
func (l *Locker) Check(ctx context.Context) error {
	err := l.WithOnly(Options{Shared: true, Kind: KindCheck}).TryDo(ctx, checkName, func(context.Context) error { return nil })
	if errors.Is(err, ErrHeld) { // another process holds the name exclusively, so the engine works
		return nil
	}
	return err
}

// Break ends all current acquisitions of name. It sends reason to the holders that are reachable
// and returns a new token, greater than theirs, with which guarded resources refuse their writes.
// Use it when a holder is known to be stuck. Break returns ErrNotHeld if the name is not held, and
// ErrUnsupported if the engine cannot break locks.
func (l *Locker) Break(ctx context.Context, name, reason string) (token int64, err error) {
	breaker, ok := l.engine.(driver.Breaker)
	if !ok {
		return 0, l.unsupported("break locks")
	}
	return breaker.Break(ctx, name, reason)
}

// BreakOwner is [Locker.Break] for the one acquisition whose Holder.Owner is owner. A later holder
// and others that share the name keep their locks. The returned token is greater than that of the
// broken acquisition; if others share the name, guarded resources that store it refuse their writes
// too. BreakOwner returns ErrNotHeld if the owner does not hold the name any more, and
// ErrUnsupported if the engine cannot break single acquisitions.
func (l *Locker) BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error) {
	breaker, ok := l.engine.(driver.OwnerBreaker)
	if !ok {
		return 0, l.unsupported("break one acquisition")
	}
	return breaker.BreakOwner(ctx, name, owner, reason)
}

// Resize changes the limit of a shared name for all users of it, from now on. The new limit
// replaces the Options.Limit of their requests. Current holders stay, even if they exceed the new
// limit. Waiters that fit are admitted. A request that weighs more than the new limit is admitted
// when nobody else holds the name. The engine stores the limit at least as long as the last token
// of the name; see its page. Resize returns ErrInvalid for a limit below 1 or above 1,000,000,000,
// and ErrUnsupported if the engine has no limits.
func (l *Locker) Resize(ctx context.Context, name string, limit int) error {
	resizer, ok := l.engine.(driver.Resizer)
	if !ok {
		return l.unsupported("change a limit")
	}
	return resizer.Resize(ctx, name, limit)
}

func (l *Locker) unsupported(what string) error {
	return fmt.Errorf("%w: %s cannot %s", ErrUnsupported, l.traits.Engine, what)
}

// Records returns the records that the engine stores beside its locks. It does no I/O. It returns
// ErrUnsupported if the engine has none. Redlock has none, because a majority of servers cannot do
// a compare-and-swap.
func (l *Locker) Records() (Records, error) {
	if r, ok := l.engine.(driver.RecordKeeper); ok {
		return r.Records(), nil
	}
	return nil, l.unsupported("keep records")
}

// Stats are counters of a Locker for a dashboard.
type Stats struct {
	Held    int           // locks held; those of a set count one by one
	Waiting int           // acquisitions in progress: in the queue, or not yet answered
	Oldest  time.Duration // how long the oldest lock has been held
	Left    time.Duration // the shortest time that a lock has left; 0 without leases
}

// Stats counts the locks of l and of all Lockers related to it by [Locker.With] or
// [Locker.WithOnly]. It does no I/O but visits every lock: call it periodically, not on each
// request.
func (l *Locker) Stats() Stats {
	r, now := l.renewer, clock.Now()
	s := Stats{Waiting: int(r.acquiring.Load())}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Held = len(r.held)
	for lock := range r.held {
		s.Oldest = max(s.Oldest, lock.age(now.Mono))
		if left, ok := lock.left(now); ok && (s.Left == 0 || left < s.Left) {
			s.Left = left
		}
	}
	return s
}
