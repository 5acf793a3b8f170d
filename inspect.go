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

// lookEvery is how often Watch asks an engine that does not tell by itself.
const lookEvery = 500 * time.Millisecond

// Status tells who holds name and who waits for it. It is a look, not a promise:
// the answer may be out of date when it arrives, so decide nothing by it that a
// lock should decide. The Status of a name that nobody uses has its Name alone.
// ErrUnsupported if the engine cannot list.
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

// List returns the names with this prefix that are held, waited for or closed by a
// minimum hold, ordered by name; all of them if prefix is empty. Some engines list a name
// only after it was held for a moment; see their pages. If some names cannot be read the
// others may come together with an error. ErrUnsupported if the engine cannot list.
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

// Watch tells what happens to the names with this prefix, beginning with what stands:
//
//	for ev, err := range locks.Watch(ctx, "invoice:") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(ev.Kind, ev.Name)
//	}
//
// It goes on until ctx ends or the engine cannot be watched any more, and the last thing
// it tells is that error; it never ends without one unless the loop is left. An engine that
// does not tell by itself is asked twice a second, and what begins and ends in between
// goes unseen. ErrUnsupported if the engine can neither tell nor list.
func (l *Locker) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return l.watch(ctx, driver.Query{Prefix: prefix})
}

// WatchName is Watch for one name, which every engine can do at little cost.
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

// errLeft ends an engine's watch when nobody listens any more.
var errLeft = errors.New("the loop was left")

// follow calls fn for every event, until ctx ends or fn returns an error.
func (l *Locker) follow(ctx context.Context, q driver.Query, fn func(Event) error) error {
	switch e := l.engine.(type) {
	case driver.Watcher:
		return e.Watch(ctx, q, fn)
	case driver.Lister:
		return watch.Poll(ctx, e, q, lookEvery, fn)
	}
	return l.unsupported("watch locks")
}

// checkName is what Check locks.
const checkName = "fencelock:check"

// Check makes sure that the engine can be used: it takes a shared lock on a name of its
// own, "fencelock:check", and releases it. Any number of processes may check at once. It
// is for start-up and readiness probes; give it a ctx with a limit. The errors are
// those of [Locker.TryAcquire] and [Lock.Release], ErrHeld excepted.
func (l *Locker) Check(ctx context.Context) error {
	err := l.WithOnly(Options{Shared: true}).TryDo(ctx, checkName, func(context.Context) error { return nil })
	if errors.Is(err, ErrHeld) { // somebody took it exclusively, and the engine says so
		return nil
	}
	return err
}

// Break ends every current acquisition of name, tells the holders that can be reached
// why, and returns a fresh token, greater than theirs, that shuts them out of guarded
// resources. It is for people who know that the holders are stuck. ErrNotHeld when
// nobody holds the name, ErrUnsupported if the engine cannot break locks.
func (l *Locker) Break(ctx context.Context, name, reason string) (token int64, err error) {
	breaker, ok := l.engine.(driver.Breaker)
	if !ok {
		return 0, l.unsupported("break locks")
	}
	return breaker.Break(ctx, name, reason)
}

// BreakOwner is Break for one acquisition, the one whose Holder.Owner is owner: a
// successor that has come meanwhile, and others who share the name, keep their locks.
// The token is greater than that of the broken acquisition. Where others share the name it
// shuts them out of guarded resources too. ErrNotHeld when the owner does not hold the
// name any more, ErrUnsupported if the engine cannot do that.
func (l *Locker) BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error) {
	breaker, ok := l.engine.(driver.OwnerBreaker)
	if !ok {
		return 0, l.unsupported("break one acquisition")
	}
	return breaker.BreakOwner(ctx, name, owner, reason)
}

// Resize sets the limit of a shared name for everybody, from now on: it takes the
// place of the Options.Limit that they ask with. Holders stay, even if they are
// too many now, and waiters who fit are let in. The engine remembers it at least
// as long as the name's last token; see its page. A request that weighs more than
// the new limit gets in when nobody else holds the name. ErrInvalid for a limit
// below 1 or above 1,000,000,000, ErrUnsupported if the engine has no limits.
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

// Records returns the records that the engine keeps beside its locks. It does no I/O.
// ErrUnsupported if the engine keeps none, as Redlock does: a majority of servers cannot
// replace a value on a condition.
func (l *Locker) Records() (Records, error) {
	if r, ok := l.engine.(driver.RecordKeeper); ok {
		return r.Records(), nil
	}
	return nil, l.unsupported("keep records")
}

// Stats are numbers for a dashboard.
type Stats struct {
	Held    int           // locks that are held, those in sets one by one
	Waiting int           // acquisitions under way: they wait for their turn, or for an answer
	Oldest  time.Duration // how long the oldest of the locks has been held
	Left    time.Duration // the least time that one of them has left; 0 without leases
}

// Stats counts the locks of l, and of every Locker that [Locker.With] or [Locker.WithOnly] made
// of the same one. It does no I/O, and looks at each lock: ask for it now and then, not for each
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
