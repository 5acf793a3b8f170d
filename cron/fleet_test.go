package cron_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/memlock"
)

// Eight clocks, five seconds from one to the next, and a job that is long done
// when the others look: every tick is run once.
func TestEveryTickRunsOnce(t *testing.T) {
	for name, overlap := range map[string]cron.Overlap{
		"skip": cron.OverlapSkip, "wait": cron.OverlapLast, "allow": cron.OverlapAllow,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(8, 5*time.Second, cron.Config{Overlap: overlap})
				ticks := series(100, 200*time.Millisecond)
				var schedulers sync.WaitGroup
				for _, in := range all {
					schedulers.Go(func() { in.schedule(t.Context(), ticks, time.Millisecond) })
				}
				schedulers.Wait()
				books.wantRuns(t, ticks, 1)
				if len(books.failed) > 0 || books.skipped[cron.ReasonClaimed] != 700 {
					t.Errorf("skipped %v, failed %v", books.skipped, books.failed)
				}
			})
		})
	}
}

// Eight good clocks: all instances ask in the same instant.
func TestEveryTickRunsOnceInARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(8, 0, cron.Config{})
		ticks := series(100, 200*time.Millisecond)
		var schedulers sync.WaitGroup
		for _, in := range all {
			schedulers.Go(func() { in.schedule(t.Context(), ticks, time.Millisecond) })
		}
		schedulers.Wait()
		books.wantRuns(t, ticks, 1)
	})
}

// An instance that dies takes its tick with it. How long it holds up later ticks
// is its TTL, and what becomes of them is the policy.
func TestInstanceKilledInItsRun(t *testing.T) {
	for name, c := range map[string]struct {
		overlap cron.Overlap
		lost    int // ticks that are skipped because of the dead
	}{
		"skip":  {cron.OverlapSkip, 9},
		"wait":  {cron.OverlapLast, 0},
		"allow": {cron.OverlapAllow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(2, 500*time.Millisecond, cron.Config{Overlap: c.overlap})
				ticks := series(40, time.Second)
				dying, die := context.WithCancel(t.Context())
				var schedulers sync.WaitGroup
				schedulers.Go(func() { all[0].schedule(dying, ticks, 100*time.Millisecond) })
				schedulers.Go(func() { all[1].schedule(t.Context(), ticks, 100*time.Millisecond) })
				time.Sleep(20*time.Second + 50*time.Millisecond) // in the middle of the 20th run
				all[0].engine.Kill()
				die()
				schedulers.Wait()
				if got := len(books.runs); got != len(ticks)-c.lost {
					t.Errorf("%d ticks were run", got)
				}
				for tick, runs := range books.runs {
					if runs != 1 {
						t.Errorf("%v was run %d times", tick, runs)
					}
				}
				if got := books.skipped[cron.ReasonOverlapped]; got != c.lost {
					t.Errorf("%d ticks overlapped the dead, want %d", got, c.lost)
				}
			})
		})
	}
}

// An instance that stood still between its decision and its claim comes too late
// for everybody, also when the claim is over.
func TestFrozenInstanceDoesNotRunAnOldTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		all := []*instance{books.instance(store.Client(), claimsOnly, cron.Config{}), books.instance(store.Client(), claimsOnly, cron.Config{})}
		tick := time.Now()
		all[1].engine.Freeze()
		asked := make(chan error, 1)
		go func() { asked <- all[1].job.Tick(t.Context(), tick, books.work(tick, 0)) }() // ends after Thaw
		synctest.Wait()
		if err := all[0].job.Tick(t.Context(), tick, books.work(tick, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the claim is over
		all[1].engine.Thaw()
		want(t, "Tick", <-asked, fencelock.ErrUnavailable)
		books.wantRuns(t, []time.Time{tick}, 1)
	})
}

// A claim that took too long proves nothing: another one may have come and gone.
func TestSlowClaimDoesNotRunAnOldTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{Late: 5 * time.Second})
		in.engine.Delay(6 * time.Second)
		wantSkipped(t, in.job.Tick(t.Context(), time.Now(), nothing), cron.ReasonTooLate)
		if books.skipped[cron.ReasonTooLate] != 1 {
			t.Errorf("%v", books.skipped)
		}
	})
}
