package watch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/watch"
	"github.com/fencelock/fencelock/memlock"
	"github.com/google/go-cmp/cmp"
)

const (
	ttl   = time.Minute
	every = time.Second
)

// following runs Poll in a goroutine, which ends with stop.
type following struct {
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex // guards seen and events
	seen   []string   // "kind name"
	events []driver.Event
}

func follow(lister driver.Lister, q driver.Query) *following {
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{cancel: cancel, done: make(chan error, 1)}
	go func() {
		f.done <- watch.Poll(ctx, lister, q, every, func(ev driver.Event) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, fmt.Sprintf("%s %s", ev.Kind, ev.Name))
			f.events = append(f.events, ev)
			return nil
		})
	}()
	synctest.Wait()
	return f
}

func (f *following) stop() error {
	synctest.Wait()
	f.cancel()
	return <-f.done
}

// look lets the next look happen.
func look() {
	time.Sleep(every)
	synctest.Wait()
}

func take(t *testing.T, e *memlock.Engine, name string) driver.Lease {
	t.Helper()
	g, err := e.Acquire(t.Context(), driver.Request{Name: name, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: ttl}
}

func release(t *testing.T, e *memlock.Engine, l driver.Lease) {
	t.Helper()
	if err := e.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// queue waits for name in a goroutine, which ends with the returned cancel.
func queue(e *memlock.Engine, name string) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = e.Acquire(ctx, driver.Request{Name: name, TTL: ttl, Wait: true}) }()
	synctest.Wait()
	return cancel
}

func wantSeen(t *testing.T, f *following, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := cmp.Diff(want, f.seen); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestPollTellsEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		b := a.Client()
		held := take(t, a, "jobs/b")
		defer queue(b, "jobs/b")()
		f := follow(a.Client(), driver.Query{Prefix: "jobs/"})
		take(t, a, "other")
		first := take(t, a, "jobs/a")
		leave := queue(b, "jobs/b")
		look()
		leave()
		release(t, a, first)
		release(t, a, held)
		look()
		if err := f.stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Poll returned %v", err)
		}
		wantSeen(t, f,
			"acquired jobs/b", "waiting jobs/b", // what stood
			"acquired jobs/a", "waiting jobs/b",
			"released jobs/a", "released jobs/b", "left jobs/b", "acquired jobs/b")
	})
}

func TestPollTellsALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		lease := take(t, a, "x")
		f := follow(a, driver.Query{})
		for range 50 { // renewed in time: nothing happens
			look()
			if err := a.Renew(t.Context(), []driver.Lease{lease})[0]; err != nil {
				t.Fatal(err)
			}
		}
		wantSeen(t, f, "acquired x")
		time.Sleep(ttl)
		look()
		_ = f.stop()
		wantSeen(t, f, "acquired x", "lost x")
		if gone := f.events[1]; gone.Owner != lease.Owner || gone.Token != lease.Token {
			t.Errorf("lost %+v, want %+v", gone, lease)
		}
	})
}

// A name that is taken again between two looks ends before it begins.
func TestPollTellsASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		lease := take(t, a, "x")
		f := follow(a, driver.Query{Prefix: "x", Exact: true})
		release(t, a, lease)
		take(t, a, "x")
		look()
		_ = f.stop()
		wantSeen(t, f, "acquired x", "released x", "acquired x")
	})
}

// A name between two known ones is told in its place.
func TestPollKeepsTheOrderOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		one, three := take(t, a, "1"), take(t, a, "3")
		f := follow(a, driver.Query{})
		take(t, a, "2")
		take(t, a, "4")
		release(t, a, one)
		release(t, a, three)
		look()
		_ = f.stop()
		wantSeen(t, f, "acquired 1", "acquired 3", "released 1", "acquired 2", "released 3", "acquired 4")
	})
}

func TestPollReturnsTheCallersError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		take(t, a, "x")
		enough := errors.New("enough")
		err := watch.Poll(t.Context(), a, driver.Query{}, every, func(driver.Event) error { return enough })
		if !errors.Is(err, enough) {
			t.Errorf("Poll returned %v", err)
		}
	})
}

// flaky is a lister that is slow, and fails at some times.
type flaky struct {
	down  func(time.Time) bool
	takes time.Duration
	asked int
}

func (l *flaky) List(context.Context, driver.Query) ([]driver.Status, error) {
	l.asked++
	time.Sleep(l.takes)
	if l.down != nil && l.down(time.Now()) {
		return nil, driver.ErrUnavailable
	}
	return nil, nil
}

func TestPollFailsAtTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := watch.Poll(t.Context(), &flaky{down: func(time.Time) bool { return true }}, driver.Query{}, every, nil)
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Poll returned %v", err)
		}
	})
}

func TestPollRidesOutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		f := follow(&flaky{down: func(now time.Time) bool {
			at := now.Sub(begun)
			return at > time.Second && at < 25*time.Second || at > time.Minute
		}}, driver.Query{})
		time.Sleep(89 * time.Second)
		synctest.Wait()
		if len(f.done) > 0 {
			t.Error("Poll gave up at once")
		}
		time.Sleep(time.Minute)
		if err := f.stop(); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Poll returned %v", err)
		}
	})
}

func TestPollDoesNotWearOutASlowEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lister := &flaky{takes: time.Second}
		f := follow(lister, driver.Query{})
		time.Sleep(99 * time.Second)
		_ = f.stop()
		if lister.asked != 10 {
			t.Errorf("listed %d times in 99 s, a second each", lister.asked)
		}
	})
}

// Whoever takes its time with an event receives the next ones as soon as others do, and an
// engine that fails just then is given as much time as always.
func TestPollWaitsForNoListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memlock.New(nil)
		var at []time.Duration
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := take(t, a, "x")
		err := watch.Poll(ctx, a, driver.Query{}, every, func(driver.Event) error {
			at = append(at, time.Since(begun))
			if len(at) == 2 {
				cancel()
				return nil
			}
			time.Sleep(50 * time.Second)
			release(t, a, lease)
			a.Refuse(errors.New("a restart"))
			time.AfterFunc(5*time.Second, func() { a.Refuse(nil) })
			return nil
		})
		if !errors.Is(err, context.Canceled) || len(at) != 2 || at[1] > time.Minute {
			t.Errorf("Poll told of events at %v, and returned %v", at, err)
		}
	})
}

// TestChangesTellsLostFromReleased: only a lease that could have run out between two listings was
// lost. A hand-over begins with a short lease, until the waiter has confirmed it.
func TestChangesTellsLostFromReleased(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		held, left time.Duration
		want       driver.EventKind
	}{
		{time.Minute, 500 * time.Millisecond, driver.EventLost},
		{time.Minute, 2 * time.Second, driver.EventReleased},
		{time.Second, 500 * time.Millisecond, driver.EventReleased}, // a hand-over
		{time.Minute, 0, driver.EventReleased},                      // without a lease
	} {
		h := driver.Holder{Owner: "a", Since: now.Add(-c.held), TTL: c.left, Lease: 30 * time.Second}
		events := watch.Changes([]driver.Status{{Name: "x", Holders: []driver.Holder{h}}}, nil, time.Second, now)
		if len(events) != 1 || events[0].Kind != c.want {
			t.Errorf("held for %v, %v left: %v, want %s", c.held, c.left, events, c.want)
		}
	}
}

func TestPause(t *testing.T) {
	for listing, want := range map[time.Duration]time.Duration{0: every, every / 10: every, every: 9 * every} {
		if got := watch.Pause(every, listing); got != want {
			t.Errorf("after a listing of %v: %v, want %v", listing, got, want)
		}
	}
}
