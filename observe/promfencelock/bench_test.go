package promfencelock_test

import (
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/promfencelock"
)

// The difference to "none" is what metrics cost for one acquisition and its release.
func BenchmarkOverhead(b *testing.B) {
	for what, tracer := range map[string]*fencelock.Tracer{"none": nil, "metrics": promfencelock.New(nil).Tracer()} {
		b.Run(what, func(b *testing.B) {
			locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: tracer})
			b.ReportAllocs()
			for b.Loop() {
				lock, err := locks.Acquire(b.Context(), "invoice:42")
				if err != nil {
					b.Fatal(err)
				}
				_ = lock.Release()
			}
		})
	}
}
