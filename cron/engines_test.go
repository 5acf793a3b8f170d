//go:build unix

package cron_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(nil)
	os.Exit(m.Run())
}

// Eight clocks, and a job that is done long before the next of them has its tick:
// each tick is run once, on the engines that ship. With FENCELOCK_SLOW set, the
// clocks are five seconds from one to the next.
func TestEveryTickRunsOnceOnRealEngines(t *testing.T) {
	count, gap, apart := 25, 20*time.Millisecond, 300*time.Millisecond
	if os.Getenv("FENCELOCK_SLOW") != "" {
		count, gap, apart = 100, 200*time.Millisecond, 5*time.Second
	}
	for name, connect := range engines.All(ttl) {
		t.Run(name, func(t *testing.T) {
			client, books := connect(t), newLedger()
			var all []*instance
			for i := range 8 {
				in := &instance{behind: time.Duration(i) * apart, ledger: books}
				in.locks = fencelock.New(client(), &fencelock.Config{TTL: ttl})
				in.job = cron.New(in.locks, "job", &cron.Config{OnTick: books.note, Overlap: cron.OverlapLast})
				if err := in.job.Tick(t.Context(), time.Now(), nothing); err != nil { // connects
					t.Fatal(err)
				}
				all = append(all, in)
			}
			ticks := series(count, gap)
			var schedulers sync.WaitGroup
			for _, in := range all {
				schedulers.Go(func() { in.schedule(t.Context(), ticks, time.Millisecond) })
			}
			schedulers.Wait()
			for i, tick := range ticks {
				if books.runs[tick] != 1 {
					t.Errorf("tick %d was run %d times", i, books.runs[tick])
				}
			}
			if len(books.failed) > 0 || books.skipped[cron.Claimed] != 7*len(ticks) {
				t.Errorf("skipped %v, failed %v", books.skipped, books.failed)
			}
		})
	}
}
