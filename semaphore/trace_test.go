package semaphore_test

import (
	"context"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/semaphore"
)

// Permits are of the kind semaphore.
func TestKindOfPermits(t *testing.T) {
	var kind string
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) { kind = d.Kind },
	}})
	permit, err := semaphore.New(locks, "gpu", 2).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Release(); err != nil || kind != fencelock.KindSemaphore {
		t.Errorf("the kind is %q, and the release returned %v", kind, err)
	}
}
