//go:build unix

package idempotent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/memlock"
)

// TestRunThatDoesNotStartOnRedlock: with locks on Redlock and records elsewhere, an attempt that
// fails before the function is called leaves the key to the next caller: the records refuse the
// beginning, its answer is lost, or the process ends after it.
func TestRunThatDoesNotStartOnRedlock(t *testing.T) {
	t.Parallel()
	connect := engines.All(time.Hour)["redlock"](t)
	for name, attempt := range map[string]func(*testing.T, *faulty){
		"refused": func(t *testing.T, f *faulty) {
			f.cut.Store(true)
			_, err := over(connect(), f, nil).Begin(t.Context(), t.Name())
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			f.cut.Store(false)
		},
		"the answer is lost": func(t *testing.T, f *faulty) {
			var lost atomic.Int64
			f.lose = func() bool { return lost.Add(1) <= 2 }
			_, err := over(connect(), f, nil).Begin(t.Context(), t.Name())
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		},
		"the process ends": func(t *testing.T, f *faulty) {
			run, err := over(connect(), f, nil).Begin(t.Context(), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Lock().Release(); err != nil { // as when its lease expires
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &faulty{Records: memlock.New(nil).Records()}
			attempt(t, f)
			var runs atomic.Int64
			for range 2 {
				got, err := idempotent.Do(context.WithoutCancel(t.Context()), over(connect(), f, nil), t.Name(), counted(&runs))
				if got != 1 || err != nil {
					t.Errorf("%d, %v; want 1", got, err)
				}
			}
		})
	}
}
