package fencelock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
)

// sent returns a lease as another process receives it.
func sent(t *testing.T, lease fencelock.Lease) (got fencelock.Lease) {
	t.Helper()
	text, err := json.Marshal(lease)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestAdopt: a detached lock passes to another process, once. The adopter holds it with its own
// options and a greater token, past the lease of the first process.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		first := acquire(t, locks, "a")
		with := first.ContextWith(t.Context())
		if err := first.Detach(); err != nil {
			t.Fatal(err)
		}
		if with.Err() == nil || !errors.Is(first.Err(), fencelock.ErrNotHeld) || locks.Stats().Held != 0 {
			t.Errorf("detached: context %v, Err %v, %+v", with.Err(), first.Err(), locks.Stats())
		}
		if err := first.Detach(); !errors.Is(err, fencelock.ErrNotHeld) || !strings.Contains(err.Error(), "was detached") {
			t.Errorf("detached twice: %v", err)
		}
		if err := first.Release(); err != nil {
			t.Errorf("a release after a detach: %v", err)
		}

		o := fencelock.Options{TTL: time.Minute, MaxHold: 5 * hour, Note: "adopter"}
		second, third := fencelock.New(engine.Client(), nil).With(o), fencelock.New(engine.Client(), nil)
		lease := sent(t, first.Lease())
		lock, err := second.Adopt(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if lock.Token() <= first.Token() || lock.Floor() != lock.Token() || lock.Owner() == first.Owner() || second.Stats().Held != 1 {
			t.Errorf("adopted: token %d after %d, floor %d, %+v", lock.Token(), first.Token(), lock.Floor(), second.Stats())
		}
		if status, err := third.Status(t.Context(), "a"); err != nil || len(status.Holders) != 1 || status.Holders[0].Note != "adopter" {
			t.Errorf("status %+v, %v", status, err)
		}
		for range 2 {
			if _, err := third.Adopt(t.Context(), lease); !errors.Is(err, fencelock.ErrNotHeld) {
				t.Errorf("adopted twice: %v", err)
			}
		}
		time.Sleep(4 * hour) // it is renewed
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * hour)
		if err := lock.Err(); !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("after the adopter's maximum hold: %v", err)
		}
		if got := acquire(t, third, "a"); got.Token() <= lock.Token() {
			t.Errorf("token %d after %d", got.Token(), lock.Token())
		}
	})
}

// TestAdoptWithoutDetach: a first holder that does not stop learns of its loss at its next renewal.
// Its release does not affect the adopter.
func TestAdoptWithoutDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		first := acquire(t, locks, "a")
		lock, err := fencelock.New(engine.Client(), nil).Adopt(t.Context(), first.Lease())
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Err(); err != nil {
			t.Errorf("before its next renewal: %v", err)
		}
		<-first.Context().Done()
		if cause := context.Cause(first.Context()); !errors.Is(cause, fencelock.ErrLost) || !errors.Is(first.Detach(), fencelock.ErrLost) {
			t.Errorf("after its next renewal: %v; Detach: %v", cause, first.Detach())
		}
		if err := first.Release(); err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
			t.Error(err)
		}
		time.Sleep(hour)
		if err := lock.Err(); err != nil {
			t.Errorf("the adopter: %v", err)
		}
	})
}

// TestDetachedLeaseExpires: if nobody adopts a detached lock, it is free after its TTL.
func TestDetachedLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		first := acquire(t, locks, "a")
		time.Sleep(10 * hour)
		if err := first.Detach(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		next := acquire(t, fencelock.New(engine.Client(), nil), "a")
		if took := time.Since(begun); took < hour/2 || took > hour {
			t.Errorf("free after %v", took)
		}
		if _, err := locks.Adopt(t.Context(), first.Lease()); !errors.Is(err, fencelock.ErrNotHeld) {
			t.Errorf("adopted after the lease: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestAdoptShared: only one of two shared holders is replaced.
func TestAdoptShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		seats := fencelock.Options{Shared: true, Limit: 2}
		one, two := acquire(t, locks.With(seats), "a"), acquire(t, locks.With(seats), "a")
		if err := two.Detach(); err != nil {
			t.Fatal(err)
		}
		others := fencelock.New(engine.Client(), nil)
		for _, o := range []fencelock.Options{{}, {Shared: true}, {Shared: true, Limit: 3}, {Shared: true, Limit: 2, Weight: 2}, {Shared: true, Limit: 2, MinHold: hour}} {
			if _, err := others.With(o).Adopt(t.Context(), two.Lease()); !errors.Is(err, fencelock.ErrInvalid) {
				t.Errorf("adopted with %+v: %v", o, err)
			}
		}
		three, err := others.With(seats).Adopt(t.Context(), two.Lease())
		if err != nil || three.Floor() != one.Token() {
			t.Fatalf("%v, floor %d beside token %d", err, three.Floor(), one.Token())
		}
		if _, err := locks.With(seats).TryAcquire(t.Context(), "a"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("a third holder: %v", err)
		}
		if err := one.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestAdoptIsTraced: tracers distinguish an adoption from an acquisition, and a detach from a
// release.
func TestAdoptIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireStart: func(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
				lines = append(lines, fmt.Sprint("start ", d.Adopt))
				return ctx
			},
			AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) {
				lines = append(lines, fmt.Sprint("end ", d.Adopt, d.Token > 0, d.Err == nil))
			},
			HoldEnd: func(_ context.Context, d fencelock.TraceHoldEnd) {
				lines = append(lines, fmt.Sprint("held ", d.Detached, d.Lost == nil))
			},
			ReleaseStart: func(ctx context.Context, _ fencelock.TraceLock) context.Context {
				lines = append(lines, "release")
				return ctx
			},
		}})
		first := acquire(t, locks, "a")
		if err := first.Detach(); err != nil {
			t.Fatal(err)
		}
		lock, err := locks.Adopt(t.Context(), first.Lease())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = locks.Adopt(t.Context(), first.Lease())
		_ = lock.Release()
		want := "[start false end false true true held true true start true end true true true start true end true false false release held false true]"
		if got := fmt.Sprint(lines); got != want {
			t.Errorf("traced\n%s, want\n%s", got, want)
		}
	})
}

// TestDetachAndRelease: of a Detach and a Release at the same time one has an effect: the lock is
// either adoptable or free.
func TestDetachAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		for range 200 {
			lock := acquire(t, locks, "a")
			var both sync.WaitGroup
			var detached error
			both.Go(func() { _ = lock.Release() })
			both.Go(func() { detached = lock.Detach() })
			both.Wait()
			adopted, err := locks.Adopt(t.Context(), lock.Lease())
			if (detached == nil) != (err == nil) || err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
				t.Fatalf("Detach %v, Adopt %v", detached, err)
			}
			if err == nil {
				_ = adopted.Release()
			}
		}
	})
}

// TestAdoptOnFiles: locks on files belong to a process. They stay held after an attempt.
func TestAdoptOnFiles(t *testing.T) {
	locks := fencelock.New(filelock.New(t.TempDir(), nil), nil)
	lock := acquire(t, locks, "a")
	if err := lock.Detach(); !errors.Is(err, fencelock.ErrUnsupported) || lock.Err() != nil {
		t.Errorf("Detach %v, Err %v", err, lock.Err())
	}
	if _, err := locks.Adopt(t.Context(), lock.Lease()); !errors.Is(err, fencelock.ErrUnsupported) || lock.Err() != nil {
		t.Errorf("Adopt %v, Err %v", err, lock.Err())
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestAdoptMalformedLeases: a lease that is none changes nothing.
func TestAdoptMalformedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		good := lock.Lease()
		for _, change := range []func(*fencelock.Lease){
			func(l *fencelock.Lease) { *l = fencelock.Lease{} },
			func(l *fencelock.Lease) { l.Name = "" },
			func(l *fencelock.Lease) { l.Owner = "" },
			func(l *fencelock.Lease) { l.Owner += " 1" },
			func(l *fencelock.Lease) { l.Token = 0 },
			func(l *fencelock.Lease) { l.Mode = driver.Shared },
			func(l *fencelock.Lease) { l.Mode = 7 },
		} {
			bad := good
			change(&bad)
			if _, err := locks.Adopt(t.Context(), bad); !errors.Is(err, fencelock.ErrInvalid) {
				t.Errorf("adopting %+v: %v", bad, err)
			}
		}
		if err := lock.Err(); err != nil || lock.Release() != nil {
			t.Error(err)
		}
	})
}

// ExampleLocker_Adopt passes a lock to another process, here another client of the same engine.
func ExampleLocker_Adopt() {
	engine := memlock.New(nil)
	here, there := fencelock.New(engine, nil), fencelock.New(engine.Client(), nil)
	ctx := context.Background()

	lock, err := here.Acquire(ctx, "video:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lock.Detach(); err != nil { // stop working first
		fmt.Println(err)
		return
	}
	message, _ := json.Marshal(lock.Lease())

	var lease fencelock.Lease
	if err := json.Unmarshal(message, &lease); err != nil {
		fmt.Println(err)
		return
	}
	adopted, err := there.Adopt(ctx, lease)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer adopted.Release()
	_, again := there.Adopt(ctx, lease)
	fmt.Println(adopted.Name(), adopted.Token() > lock.Token(), errors.Is(again, fencelock.ErrNotHeld))
	// Output: video:42 true true
}
