package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
)

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

func TestTokensOfNestedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		if fencelock.TokenFrom(t.Context()) != 0 || fencelock.FloorFrom(t.Context()) != 0 {
			t.Error("a token without a lock")
		}
		outer := acquire(t, locks, "outer")
		inner, err := locks.Acquire(outer.Context(), "inner")
		if err != nil {
			t.Fatal(err)
		}
		if got := fencelock.TokenFrom(inner.Context()); got != inner.Token() {
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
