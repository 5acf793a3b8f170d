package fencelock_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// inBubble runs a test on an engine in memory, in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		test(t, fencelock.New(engine, nil).With(fencelock.Options{TTL: hour}), engine)
	})
}

// free fails the test unless another client gets each name at once.
func free(t *testing.T, engine *memlock.Engine, names ...string) {
	t.Helper()
	other := fencelock.New(engine.Client(), nil)
	for _, name := range names {
		lock, err := other.TryAcquire(t.Context(), name)
		if err != nil {
			t.Errorf("%q is not free: %v", name, err)
			continue
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestAcquireAllHoldsEveryNameOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		set, err := locks.AcquireAll(t.Context(), "b", "a", "b", "c")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * hour)
		other := fencelock.New(engine.Client(), nil)
		var names []string
		for _, lock := range set.Locks() {
			names = append(names, lock.Name())
			if _, err := other.TryAcquire(t.Context(), lock.Name()); !errors.Is(err, fencelock.ErrHeld) {
				t.Errorf("%q after a hundred leases: %v, want held", lock.Name(), err)
			}
		}
		if !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("holds %q", names)
		}
		ctx := set.Context()
		for _, lock := range set.Locks() {
			known, _ := fencelock.HeldFor(ctx, lock.Name())
			if lock.Token() <= 0 || known.Token != lock.Token() {
				t.Errorf("token of %q: %d of the lock, %+v in the context", lock.Name(), lock.Token(), known)
			}
		}
		_, one := fencelock.TokenFrom(ctx)
		_, fourth := fencelock.HeldFor(ctx, "d")
		if one || fourth {
			t.Error("a token without a lock")
		}
		if err := set.Err(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(set.Release(), set.Release()); err != nil {
			t.Error(err)
		}
		if err := set.Err(); !errors.Is(err, fencelock.ErrNotHeld) || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("after the release: %v, %v", err, context.Cause(ctx))
		}
		free(t, engine, "a", "b", "c")
	})
}

func TestTryAcquireAllHoldsNothingIfOneIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		held := acquire(t, fencelock.New(engine.Client(), nil), "b")
		_, err := locks.TryAcquireAll(t.Context(), "a", "b", "c")
		if facts, ok := errors.AsType[*fencelock.HeldError](err); !ok || facts.Name != "b" {
			t.Errorf("got %v, want held with the facts of b", err)
		}
		free(t, engine, "a", "c")
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		set, err := locks.TryAcquireAll(t.Context(), "a", "b", "c")
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestTryAcquireAllHoldsNothingAfterALoss: a lock that is lost before the last name is
// taken is the error, and the others are given back.
func TestTryAcquireAllHoldsNothingAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
		locks := fencelock.New(&slow{Engine: engine, name: "c"}, nil).With(fencelock.Options{TTL: hour})
		time.AfterFunc(time.Minute, func() { engine.Lose("a") })
		_, err := locks.TryAcquireAll(t.Context(), "a", "b", "c")
		if facts, ok := errors.AsType[*fencelock.LostError](err); !ok || facts.Name != "a" {
			t.Errorf("got %v, want that a is lost", err)
		}
		free(t, engine, "a", "b", "c")
	})
}

// TestASetOfSharedLocks: a set takes a share of each name, beside other holders as long as
// the limit allows, and else nothing.
func TestASetOfSharedLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		locks = locks.With(fencelock.Options{Shared: true, Limit: 2})
		one := acquire(t, locks, "b")
		set, err := locks.TryAcquireAll(t.Context(), "a", "b", "c")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.TryAcquireAll(t.Context(), "a", "b"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("got %v, want that b is full", err)
		}
		two, err := locks.TryAcquireAll(t.Context(), "a", "c")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(set.Err(), two.Err(), one.Release(), set.Release(), two.Release()); err != nil {
			t.Error(err)
		}
		free(t, engine, "a", "b", "c")
	})
}

func TestAcquireAllWaitsForEveryName(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		other := fencelock.New(engine.Client(), nil)
		a, c := acquire(t, other, "a"), acquire(t, other, "c")
		time.AfterFunc(time.Minute, func() { _ = a.Release() })
		time.AfterFunc(2*time.Minute, func() { _ = c.Release() })
		begun := time.Now()
		set, err := locks.AcquireAll(t.Context(), "c", "b", "a")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited != 2*time.Minute {
			t.Errorf("waited %v", waited)
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestAcquireAllGivesUpWithoutATrace(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		held := acquire(t, fencelock.New(engine.Client(), nil), "c")
		defer held.Release()
		begun := time.Now()
		_, err := locks.With(fencelock.Options{Wait: time.Minute}).AcquireAll(t.Context(), "a", "b", "c")
		if !errors.Is(err, fencelock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want held and over time", err)
		}
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("waited %v", waited)
		}
		free(t, engine, "a", "b")
	})
}

func TestAcquireAllBeginsAgainAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		held := acquire(t, fencelock.New(engine.Client(), nil), "b")
		time.AfterFunc(time.Minute, func() { engine.Lose("a") })
		time.AfterFunc(2*time.Minute, func() { _ = held.Release() })
		set, err := locks.AcquireAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Err(); err != nil {
			t.Error(err)
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
		free(t, engine, "a", "b")
	})
}

func TestDoAllEndsWithTheFirstLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		mine := errors.New("half done")
		err := locks.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			time.AfterFunc(time.Minute, func() { engine.Lose("b") })
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), fencelock.ErrLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			other := fencelock.New(engine.Client(), nil)
			if _, err := other.TryAcquire(context.WithoutCancel(ctx), "a"); !errors.Is(err, fencelock.ErrHeld) {
				t.Errorf("a while the work still runs: %v", err)
			}
			return mine
		})
		if facts, ok := errors.AsType[*fencelock.LostError](err); !ok || facts.Name != "b" || !errors.Is(err, mine) {
			t.Errorf("got %v", err)
		}
		free(t, engine, "a", "b")
	})
}

// Who asks for the context of a set that is lost already is not given one that goes on.
func TestTryDoAll(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		ran, mine := 0, errors.New("mine")
		err := locks.TryDoAll(t.Context(), []string{"b", "a"}, func(ctx context.Context) error {
			ran++
			if _, ok := fencelock.HeldFor(ctx, "b"); !ok {
				t.Error("the context does not know b")
			}
			again := locks.TryDoAll(t.Context(), []string{"c", "b"}, func(context.Context) error { ran++; return nil })
			if facts, ok := errors.AsType[*fencelock.HeldError](again); !ok || facts.Name != "b" {
				t.Errorf("got %v, want held with the facts of b", again)
			}
			free(t, engine, "c")
			return mine
		})
		if ran != 1 || err != mine {
			t.Errorf("ran %d times, %v", ran, err)
		}
		err = locks.TryDoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			engine.Lose("b")
			<-ctx.Done()
			return nil
		})
		if facts, ok := errors.AsType[*fencelock.LostError](err); !ok || facts.Name != "b" {
			t.Errorf("got %v, want that b is lost", err)
		}
		free(t, engine, "a", "b")
	})
}

func TestContextOfALostSet(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		set, err := locks.AcquireAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		engine.Lose("b")
		synctest.Wait()
		if ctx := set.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), fencelock.ErrLost) {
			t.Errorf("the context of a lost set: %v, %v", ctx.Err(), context.Cause(ctx))
		}
	})
}

func TestDoAllIsBoundToItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.DoAll(ctx, []string{"a", "b"}, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, fencelock.ErrLost) {
			t.Errorf("got %v", err)
		}
		free(t, engine, "a", "b")
	})
}

func TestAcquireAllRefusesNonsense(t *testing.T) {
	locks, _ := newLocks(fencelock.Config{})
	for what, try := range map[string]func() (*fencelock.LockSet, error){
		"no names": func() (*fencelock.LockSet, error) { return locks.AcquireAll(t.Context()) },
		"a bad one": func() (*fencelock.LockSet, error) {
			return locks.AcquireAll(t.Context(), "a", "")
		},
		"a minimum hold": func() (*fencelock.LockSet, error) {
			return locks.With(fencelock.Options{MinHold: hour}).AcquireAll(t.Context(), "a", "b")
		},
	} {
		if _, err := try(); !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOverlappingSetsDoNotDeadlock(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		names := []string{"a", "b", "c", "d", "e"}
		var holders [5]int
		var mu sync.Mutex
		change := func(chosen []int, by int) {
			mu.Lock()
			defer mu.Unlock()
			for _, i := range chosen {
				if holders[i] += by; holders[i] > 1 {
					t.Errorf("%q has two holders", names[i])
				}
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 20 {
					chosen := rand.Perm(len(names))[:1+rand.IntN(len(names))]
					var set []string
					for _, i := range chosen {
						set = append(set, names[i])
					}
					err := locks.DoAll(t.Context(), set, func(context.Context) error {
						change(chosen, 1)
						defer change(chosen, -1)
						time.Sleep(rand.N(time.Second))
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		free(t, engine, names...)
	})
}

func TestTheTracerHearsOfEveryName(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
		got := map[string]int64{}
		locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireEnd: func(_ context.Context, data fencelock.TraceAcquireEnd) { got[data.Name] = data.Token },
		}}).With(fencelock.Options{TTL: hour})
		set, err := locks.AcquireAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		for _, lock := range set.Locks() {
			name, token := lock.Name(), lock.Token()
			if got[name] != token {
				t.Errorf("%q: traced token %d, want %d", name, got[name], token)
			}
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A set whose time is up while a name is held is held, wherever it was just then, and
// one whose engine went away meanwhile is not.
func TestASetThatGivesUpTellsBusyFromBroken(t *testing.T) {
	for _, c := range []struct {
		what string
		slow string // the name whose request is under way when the time is up
		hang bool   // nothing is answered from the beginning
		want error
	}{
		{"it waits for the held one", "", false, fencelock.ErrHeld},
		{"nothing was answered for the first name", "a", false, fencelock.ErrUnavailable},
		{"nothing was ever answered", "", true, fencelock.ErrUnavailable},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memlock.New(nil)
				held := acquire(t, fencelock.New(inner.Client(), nil), "b")
				engine := &slow{Engine: inner, name: c.slow}
				if c.hang {
					inner.Hang()
				}
				locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour, Wait: time.Minute})
				_, err := locks.AcquireAll(t.Context(), "a", "b")
				if !errors.Is(err, c.want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v and over time", err, c.want)
				}
				if errors.Is(err, fencelock.ErrHeld) && errors.Is(err, fencelock.ErrUnavailable) {
					t.Errorf("%v is both", err)
				}
				inner.Resume()
				_ = held.Release()
				free(t, inner, "a", "b")
			})
		})
	}
}

// slow answers the requests for one name too late.
type slow struct {
	*memlock.Engine
	name string
}

func (s *slow) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Name == s.name {
		<-ctx.Done()
		return driver.Grant{}, (&driver.Waited{}).Ended(ctx, nil)
	}
	return s.Engine.Acquire(ctx, req)
}

// unsure is an engine that cannot tell how old its grants are. Renewals fail after some
// that succeed.
type unsure struct {
	*memlock.Engine
	successes, failures int
}

func (u *unsure) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := u.Engine.Acquire(ctx, req)
	grant.Sent = time.Time{}
	return grant, err
}

func (u *unsure) Renew(ctx context.Context, leases []driver.Lease) []error {
	if u.successes--; u.successes < 0 {
		if u.failures--; u.failures >= 0 {
			return []error{errors.New("no answer")}
		}
	}
	return u.Engine.Renew(ctx, leases)
}

func TestAcquireAllGoesOnAfterAFailedConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &unsure{Engine: memlock.New(nil), successes: 1, failures: 5}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		set, err := locks.AcquireAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
		engine.failures = math.MaxInt
		_, err = locks.With(fencelock.Options{Wait: time.Minute}).AcquireAll(t.Context(), "a", "b")
		if !errors.Is(err, fencelock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fencelock.ErrHeld) {
			t.Error(err)
		}
		free(t, engine.Engine, "a", "b")
	})
}

// mute is an engine that answers no release.
type mute struct{ *memlock.Engine }

func (mute) Release(ctx context.Context, _ driver.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

// What a set that was not acquired cannot give back is logged: nobody else gets it.
func TestWhatASetCannotGiveBackIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		if _, err := fencelock.New(engine.Client(), nil).Acquire(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		locks := fencelock.New(mute{engine}, &fencelock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := locks.TryAcquireAll(t.Context(), "a", "b"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("got %v, want that b is held", err)
		}
		if !strings.Contains(log.String(), "release failed") {
			t.Errorf("the log says %q", log.String())
		}
	})
}

// The context of a set has ended when Release returns, whoever else has run by then.
func TestAReleasedSetHasNoContext(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	for range 500 {
		set, err := locks.AcquireAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		ctx := set.Context()
		if err := set.Release(); err != nil || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Fatalf("%v; the context: %v", err, context.Cause(ctx))
		}
	}
}
