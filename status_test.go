package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// bare hides what an engine can do beside locking; listed shows its list again.
type (
	bare   struct{ driver.Engine }
	listed struct {
		driver.Engine
		driver.Lister
	}
)

func TestStatusOfAName(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{Note: "run 7"})
	if s, err := locks.Status(t.Context(), "x"); err != nil || s.Name != "x" || len(s.Holders) > 0 {
		t.Errorf("free: %+v, %v", s, err)
	}
	lock, err := locks.TryAcquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	s, err := locks.Status(t.Context(), "x")
	if err != nil || len(s.Holders) != 1 || s.Holders[0].Token != lock.Token() || s.Holders[0].Note != "run 7" ||
		s.Holders[0].Lease != 30*time.Second {
		t.Errorf("held: %+v, %v", s, err)
	}
	if s, err := locks.Status(t.Context(), "xy"); err != nil || len(s.Holders) > 0 {
		t.Errorf("a name that only begins the same: %+v, %v", s, err)
	}
	if _, err := locks.Status(t.Context(), ""); !errors.Is(err, fencelock.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

func TestListChoosesNames(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	for _, name := range []string{"job/b", "job/a", "other"} {
		lock, err := locks.TryAcquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
	}
	list, err := locks.List(t.Context(), "job/")
	if err != nil || len(list) != 2 || list[0].Name != "job/a" || list[1].Name != "job/b" {
		t.Errorf("%+v, %v", list, err)
	}
}

// Both a watcher and a mere lister tell of a lock that comes and goes.
func TestWatch(t *testing.T) {
	for name, wrap := range map[string]func(*memlock.Engine) driver.Engine{
		"told":  func(e *memlock.Engine) driver.Engine { return e },
		"asked": func(e *memlock.Engine) driver.Engine { return listed{e, e} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := fencelock.New(wrap(memlock.New(nil)), nil)
				var seen []string
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { // ends with cancel
					for ev, err := range locks.Watch(ctx, "x") {
						if err != nil {
							done <- err
							return
						}
						seen = append(seen, fmt.Sprint(ev.Kind, " ", ev.Name))
					}
				}()
				lock, err := locks.Acquire(ctx, "x")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				_ = lock.Release()
				time.Sleep(time.Second)
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Watch returned %v", err)
				}
				if got := strings.Join(seen, ", "); got != "acquired x, released x" {
					t.Errorf("saw %s", got)
				}
			})
		})
	}
}

// A loop that is left ends the watch, and is told nothing more.
func TestWatchIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := fencelock.New(memlock.New(nil), nil)
		for _, name := range []string{"xa", "x", "xb"} {
			lock := acquire(t, locks, name)
			defer lock.Release()
		}
		told := 0
		for ev, err := range locks.WatchName(t.Context(), "x") {
			told++
			if err != nil || ev.Name != "x" || ev.Kind != fencelock.EventAcquired {
				t.Errorf("told %+v, %v", ev, err)
			}
			break
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		locks, engine := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) { kinds = append(kinds, d.Kind) },
		}})
		check := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return locks.Check(ctx)
		}
		if err := check(); err != nil || len(kinds) != 1 || kinds[0] != fencelock.KindCheck {
			t.Errorf("%v, kinds %q", err, kinds)
		}
		if err := locks.With(fencelock.Options{MinHold: hour}).Check(t.Context()); err != nil {
			t.Errorf("of a Locker with a minimum hold: %v", err)
		}
		if list, err := locks.List(t.Context(), ""); err != nil || len(list) > 0 {
			t.Errorf("left behind: %v, %v", list, err)
		}
		busy := acquire(t, locks, "fencelock:check")
		if err := check(); err != nil {
			t.Errorf("while somebody has it: %v", err)
		}
		_ = busy.Release()
		engine.Hang()
		if err := check(); !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("an engine that does not answer: %v", err)
		}
		engine.Resume()
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		defer lock.Release()
		token, err := locks.Break(t.Context(), "a", "it hangs")
		if err != nil || token <= lock.Token() {
			t.Errorf("token %d after %d, %v", token, lock.Token(), err)
		}
		if err := lock.Err(); !errors.Is(err, fencelock.ErrLost) || !strings.Contains(err.Error(), "it hangs") {
			t.Errorf("the holder gets %v", err)
		}
		if _, err := locks.Break(t.Context(), "a", "again"); !errors.Is(err, fencelock.ErrNotHeld) {
			t.Errorf("a free name: %v", err)
		}
	})
}

// A break by owner comes too late for the one it was meant for, and leaves the next
// holder alone.
func TestBreakOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		defer lock.Release()
		s, err := locks.Status(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		owner := s.Holders[0].Owner
		token, err := locks.BreakOwner(t.Context(), "a", owner, "it hangs")
		if err != nil || token <= lock.Token() {
			t.Errorf("token %d after %d, %v", token, lock.Token(), err)
		}
		if err := lock.Err(); !errors.Is(err, fencelock.ErrLost) || !strings.Contains(err.Error(), "it hangs") {
			t.Errorf("the holder gets %v", err)
		}
		next := acquire(t, locks, "a")
		defer next.Release()
		if _, err := locks.BreakOwner(t.Context(), "a", owner, "again"); !errors.Is(err, fencelock.ErrNotHeld) {
			t.Errorf("too late: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

func TestEnginesThatCannotTell(t *testing.T) {
	locks := fencelock.New(bare{memlock.New(nil)}, nil)
	_, status := locks.Status(t.Context(), "x")
	_, list := locks.List(t.Context(), "")
	var watch error
	for _, err := range locks.Watch(t.Context(), "") {
		watch = err
	}
	_, broken := locks.Break(t.Context(), "x", "")
	_, one := locks.BreakOwner(t.Context(), "x", "owner", "")
	for _, err := range []error{status, list, watch, broken, one} {
		if !errors.Is(err, fencelock.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	}
}

// A look at who is in charge, for people and dashboards.
func ExampleLocker_Status() {
	locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{Note: "10.0.0.7:8080"})
	ctx := context.Background()
	_ = locks.Do(ctx, "leader", func(ctx context.Context) error {
		status, err := locks.Status(ctx, "leader")
		token, _ := fencelock.TokenFrom(ctx)
		fmt.Println(status.Holders[0].Note, status.Holders[0].Token == token, err)
		return nil
	})
	// Output: 10.0.0.7:8080 true <nil>
}
