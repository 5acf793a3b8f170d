package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
)

// TestLimit: the context of a release ends at its deadline and when it is stopped,
// whether or not somebody has asked for Done before, and so do those made of it.
func TestLimit(t *testing.T) {
	type key struct{}
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			made := func() (context.Context, func()) {
				return fencelock.NewLimit(context.WithValue(context.Background(), key{}, "value"), time.Now().Add(time.Second))
			}
			late, stopLate := made()
			early, stopEarly := made()
			plain, stopPlain := made()
			defer stopLate()
			defer stopPlain()
			if asked {
				_, _ = late.Done(), early.Done()
			}
			if late.Err() != nil || late.Value(key{}) != "value" {
				t.Errorf("at first: %v, %v", late.Err(), late.Value(key{}))
			}
			below, cancel := context.WithCancel(late)
			defer cancel()
			stopEarly()
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
