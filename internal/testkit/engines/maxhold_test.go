//go:build unix

package engines_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// TestMaxHoldOnRealEngines: functions that hang keep their locks for the maximum hold and the
// grace. On files, where the process lives, they keep them until they return.
func TestMaxHoldOnRealEngines(t *testing.T) {
	names := 20
	if os.Getenv("FENCELOCK_SLOW") != "" {
		names = 200
	}
	opts := fencelock.Options{TTL: time.Second, Grace: 500 * time.Millisecond, MaxHold: 2 * time.Second}
	for engine, connect := range engines.All(10 * time.Second) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			hanging, next := fencelock.New(client(), nil).With(opts), fencelock.New(client(), nil).With(fencelock.Options{TTL: 5 * time.Second})
			var all sync.WaitGroup
			for i := range names {
				all.Go(func() { outlive(t, hanging, next, fmt.Sprint("name-", i), opts, engine == "files") }) // ends with its hold
			}
			all.Wait()
		})
	}
}

// outlive holds a name for longer than it may, while another Locker waits for it.
func outlive(t *testing.T, hanging, next *fencelock.Locker, name string, opts fencelock.Options, kept bool) {
	begun, granted, returned := time.Now(), make(chan time.Time, 1), time.Time{}
	err := hanging.Do(t.Context(), name, func(ctx context.Context) error {
		go func() { // ends with the grant
			l, err := next.Acquire(t.Context(), name)
			if err != nil {
				t.Error(err)
			} else if err := l.Release(); err != nil {
				t.Error(err)
			}
			granted <- time.Now()
		}()
		<-ctx.Done()
		if took := time.Since(begun); took < opts.MaxHold || !errors.Is(context.Cause(ctx), fencelock.ErrMaxHold) {
			t.Errorf("%s: the context ended after %v: %v", name, took, context.Cause(ctx))
		}
		if kept {
			time.Sleep(2 * opts.Grace) // nothing may happen meanwhile
			returned = time.Now()
			return nil
		}
		at := <-granted
		granted <- at
		if took := at.Sub(begun); took < opts.MaxHold+opts.Grace {
			t.Errorf("%s: the next holder got the lock after %v", name, took)
		}
		return nil
	})
	if !errors.Is(err, fencelock.ErrMaxHold) || errors.Is(err, fencelock.ErrLost) {
		t.Errorf("%s: %v", name, err)
	}
	if at := <-granted; kept && at.Before(returned) {
		t.Errorf("%s: the next holder got the lock %v before the function returned", name, returned.Sub(at))
	}
}
