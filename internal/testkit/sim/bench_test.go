package sim_test

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/sim"
)

// BenchmarkRun reports what one event costs.
func BenchmarkRun(b *testing.B) {
	w, c := &sim.World{}, sim.ClassOf("network")
	b.ReportAllocs()
	for seed := uint64(1); b.Loop(); seed++ {
		if err := w.Run(c, seed); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(w.Tally.Events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(w.Tally.Events)/float64(w.Tally.Schedules), "events/op")
}
