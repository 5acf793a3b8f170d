package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
)

// TestContext: a context ends at its deadline and when it is stopped, whether or not somebody
// has asked for Done before, and so do those made of it.
func TestContext(t *testing.T) {
	type key struct{}
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			made := func() *deadline.Context {
				return deadline.New(context.WithValue(context.Background(), key{}, "value"), time.Now().Add(time.Second))
			}
			late := made()
			early := made()
			plain := made()
			defer late.Stop()
			defer plain.Stop()
			if asked {
				_, _ = late.Done(), early.Done()
			}
			if late.Err() != nil || late.Value(key{}) != "value" {
				t.Errorf("at first: %v, %v", late.Err(), late.Value(key{}))
			}
			below, cancel := context.WithCancel(late)
			defer cancel()
			early.Stop()
			if <-early.Done(); !errors.Is(early.Err(), context.Canceled) {
				t.Errorf("stopped: %v", early.Err())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if !errors.Is(plain.Err(), context.DeadlineExceeded) {
				t.Errorf("late, and nobody asked: %v", plain.Err())
			}
			<-plain.Done()
			if <-late.Done(); !errors.Is(late.Err(), context.DeadlineExceeded) || !errors.Is(below.Err(), context.DeadlineExceeded) {
				t.Errorf("late: %v, below it %v", late.Err(), below.Err())
			}
		})
	}
}

// TestContextsAbove: a deadline hides no other end. Those of this package can be taken off.
func TestContextsAbove(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			caller, end := context.WithCancel(t.Context())
			outer := deadline.New(caller, time.Now().Add(time.Hour))
			inner := deadline.New(outer, time.Now().Add(time.Minute))
			defer outer.Stop()
			defer inner.Stop()
			if deadline.Beneath(inner) != caller || deadline.Beneath(caller) != caller {
				t.Error("beneath is not the caller's context")
			}
			if asked {
				_ = inner.Done()
			}
			if at, ok := inner.Deadline(); !ok || time.Until(at) != time.Minute {
				t.Errorf("the deadline is in %v, %t", time.Until(at), ok)
			}
			end()
			if <-inner.Done(); !errors.Is(inner.Err(), context.Canceled) || !errors.Is(outer.Err(), context.Canceled) {
				t.Errorf("the caller has gone: %v, above it %v", inner.Err(), outer.Err())
			}
		})
	}
}
