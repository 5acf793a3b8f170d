package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/heldlock"
	"github.com/fencelock/fencelock/memlock"
)

// headers is a context of a type that cannot be compared.
type headers struct {
	context.Context
	of map[string]string
}

func TestContextsThatCannotBeCompared(t *testing.T) {
	ctx := headers{t.Context(), map[string]string{"a": "b"}}
	for what, tracer := range map[string]*fencelock.Tracer{
		"no tracer": nil,
		"a tracer": {
			AcquireStart: func(ctx context.Context, _ fencelock.TraceAcquireStart) context.Context { return ctx },
			HoldStart:    func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
		},
	} {
		t.Run(what, func(t *testing.T) {
			locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: tracer})
			for name, do := range map[string]func(fn func(context.Context) error) error{
				"Do":    func(fn func(context.Context) error) error { return locks.Do(ctx, "a", fn) },
				"DoAll": func(fn func(context.Context) error) error { return locks.DoAll(ctx, []string{"a", "b"}, fn) },
			} {
				ran := false
				err := do(func(ctx context.Context) error { ran = ctx.Err() == nil; return nil })
				if err != nil || !ran {
					t.Errorf("%s: %v, and the work has run: %v", name, err, ran)
				}
			}
			if st, err := locks.List(t.Context(), ""); err != nil || len(st) != 0 {
				t.Errorf("left: %v, %v", st, err)
			}
		})
	}
}

// The context is made when it is asked for, which may be after the end.
func TestAContextThatIsAskedForLateHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		released := acquire(t, locks, "a")
		if err := released.Release(); err != nil {
			t.Fatal(err)
		}
		if ctx := released.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("after a release: %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
		lost := acquire(t, locks, "a")
		engine.Lose("a")
		ctx := lost.Context()
		<-ctx.Done()
		var loss *fencelock.LostError
		if !errors.As(context.Cause(ctx), &loss) || loss.Token != lost.Token() || loss.Deadline.Before(time.Now()) {
			t.Errorf("after a loss: cause %v", context.Cause(ctx))
		}
		if err := lost.Err(); !errors.Is(err, loss) {
			t.Errorf("Err is %v, the cause of the context %v", err, loss)
		}
		if lost.Context() != ctx {
			t.Error("another context")
		}
		_ = lost.Release()
	})
}

func TestNestedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		_, token := fencelock.TokenFrom(t.Context())
		_, named := fencelock.HeldFor(t.Context(), "outer")
		if token || named {
			t.Error("a lock that nobody took")
		}
		outer := acquire(t, locks, "outer")
		inner, err := locks.Acquire(outer.Context(), "inner")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := fencelock.HeldFor(inner.Context(), "outer"); !ok || got.Name != "outer" || got.Token != outer.Token() || got.Floor != outer.Floor() {
			t.Errorf("%+v, want the outer lock, token %d", got, outer.Token())
		}
		if got, ok := fencelock.TokenFrom(inner.Context()); !ok || got != inner.Token() {
			t.Errorf("token %d, want that of the innermost lock, %d", got, inner.Token())
		}
		_ = outer.Release()
		if inner.Context().Err() != nil {
			t.Error("the inner lock's context ended with the outer lock")
		}
		err = locks.Do(inner.Context(), "third", func(ctx context.Context) error {
			_ = inner.Release()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v: the context of Do did not end with its parent", err)
		}
	})
}

// A context of one request among many that a lock serves: it has the values of the
// request and the token of the lock, and ends with whichever ends first.
func TestContextWith(t *testing.T) {
	type key struct{}
	reason := errors.New("the caller hung up")
	for name, c := range map[string]struct {
		end  func(*memlock.Engine, *fencelock.Lock, context.CancelCauseFunc)
		want error
	}{
		"the caller ends":      {func(_ *memlock.Engine, _ *fencelock.Lock, hangUp context.CancelCauseFunc) { hangUp(reason) }, reason},
		"the lock is lost":     {func(e *memlock.Engine, _ *fencelock.Lock, _ context.CancelCauseFunc) { e.Lose("a") }, fencelock.ErrLost},
		"the lock is released": {func(_ *memlock.Engine, l *fencelock.Lock, _ context.CancelCauseFunc) { _ = l.Release() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, engine := newLocks(fencelock.Config{})
				lock := acquire(t, locks, "a")
				defer lock.Release()
				caller, hangUp := context.WithCancelCause(context.WithValue(t.Context(), key{}, "request 7"))
				ctx := lock.ContextWith(caller)
				below, cancel := context.WithCancel(ctx)
				defer cancel()
				if token, _ := fencelock.TokenFrom(ctx); token != lock.Token() || ctx.Value(key{}) != "request 7" || ctx.Err() != nil {
					t.Errorf("token %d, value %v, %v", token, ctx.Value(key{}), ctx.Err())
				}
				c.end(engine, lock, hangUp)
				if ctx.Err() == nil || below.Err() == nil { // at once: no goroutine has to run first
					t.Error("the context goes on")
				}
				if cause := context.Cause(ctx); !errors.Is(cause, c.want) {
					t.Errorf("cause %v, want %v", cause, c.want)
				}
			})
		})
	}
}

func TestContextWithAfterTheEnd(t *testing.T) {
	locks, _ := newLocks(fencelock.Config{})
	lock := acquire(t, locks, "a")
	_ = lock.Release()
	if ctx := lock.ContextWith(t.Context()); ctx.Err() == nil {
		t.Error("a context of a lock that was released goes on")
	}
}

// A lock that is held for years keeps nothing of the requests that it served.
func TestContextsThatEndedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		defer lock.Release()
		for range 100 {
			caller, cancel := context.WithCancel(t.Context())
			lock.ContextWith(caller)
			cancel()
		}
		synctest.Wait()
		if n := fencelock.Joined(lock); n != 0 {
			t.Errorf("%d contexts are kept", n)
		}
	})
}

// Two contexts are of the same lock if the innermost lock, or set of locks, is the same.
func TestSameLock(t *testing.T) {
	locks, _ := newLocks(fencelock.Config{})
	a := acquire(t, locks, "a")
	set, err := locks.AcquireAll(t.Context(), "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Release()
	other, err := locks.AcquireAll(set.Context(), "d", "e")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	all := []context.Context{t.Context(), a.Context(), set.Context(), other.Context(), a.ContextWith(set.Context())}
	for i, x := range all {
		for j, y := range all {
			want := i == j || i+j == 5 && i*j == 4 // the last one is a's too
			if got := context.WithoutCancel(x).Value(heldlock.Inner{}) == y.Value(heldlock.Inner{}); got != want {
				t.Errorf("contexts %d and %d: %v, want %v", i, j, got, want)
			}
		}
	}
}
