//go:build unix

package idempotent_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// TestCutOffRunOnAnyEngine: on the engines that keep records, a run that is cut off for
// longer than its lease is taken over, its completion is refused, and of many callers
// all get what the later run has stored.
func TestCutOffRunOnAnyEngine(t *testing.T) {
	all := engines.All(30 * time.Second)
	delete(all, "redlock") // which keeps none
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := all[name](t)
			records := func() driver.Records { return connect().(driver.RecordKeeper).Records() }
			away := &faulty{Records: records()}
			begun, end := make(chan struct{}), make(chan struct{})
			a := start(t.Context(), idempotent.New(away, &idempotent.Config{Lease: 2 * time.Second}), "a", func(context.Context) (int64, error) {
				away.cut.Store(true)
				close(begun)
				<-end
				return 1, nil
			})
			<-begun
			var runs atomic.Int64
			var others []<-chan answer
			for range 4 {
				others = append(others, start(t.Context(), idempotent.New(records(), nil), "a", func(context.Context) (int64, error) { return 100 + runs.Add(1), nil }))
			}
			for _, c := range others {
				if got := <-c; got.value != 101 || got.err != nil {
					t.Errorf("%+v, want 101", got)
				}
			}
			away.cut.Store(false)
			close(end)
			if got := <-a; !errors.Is(got.err, fencelock.ErrLost) {
				t.Errorf("the run that was cut off: %+v", got)
			}
			got, err := idempotent.Do(t.Context(), idempotent.New(records(), nil), "a", func(context.Context) (int64, error) { return 0, nil })
			if got != 101 || err != nil {
				t.Errorf("what is stored: %d, %v", got, err)
			}
		})
	}
}
