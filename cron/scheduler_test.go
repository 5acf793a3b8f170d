package cron_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/cron"
)

// tally counts ticks by their outcome, for one instance.
type tally struct {
	mu  sync.Mutex // guards ran
	ran []time.Time
}

func (y *tally) note(run cron.Run, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if err == nil {
		y.ran = append(y.ran, run.Tick)
	}
}

func (y *tally) list() []time.Time {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.ran
}

func TestRunIsAScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(4, 0, cron.Config{})
		var ticks tally
		ctx, cancel := context.WithCancelCause(t.Context())
		var runs sync.WaitGroup
		reason := errors.New("deployment")
		for _, in := range all {
			in.tell(ticks.note)
			runs.Go(func() { want(t, "Run", in.job.Run(ctx, cron.Every(90*time.Second), nothing), reason) })
		}
		time.Sleep(15*time.Minute + time.Second)
		cancel(reason)
		runs.Wait()
		if got := ticks.list(); len(got) != 10 {
			t.Errorf("%d ticks: %v", len(got), got)
		}
	})
}

func TestRunEndsWithItsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		ticks := series(3, 10*time.Minute)
		var done tally
		in.tell(done.note)
		begun := time.Now()
		err := in.job.Run(t.Context(), times(ticks), func(ctx context.Context) error { return idle(ctx, time.Minute) })
		if err != nil || time.Since(begun) != 31*time.Minute || len(done.list()) != 3 {
			t.Errorf("%v after %v, %v", err, time.Since(begun), books.skipped)
		}
	})
}

// Everything was down over night: the first instance that comes back makes up
// for what was missed, the next one finds nothing left to do.
func TestRunMakesUpForMissedTicks(t *testing.T) {
	for _, c := range []struct{ catchUp, want int }{{0, 0}, {1, 1}, {3, 3}, {99, 12}} {
		synctest.Test(t, func(t *testing.T) {
			all, _ := fleet(2, 0, cron.Config{Late: 12 * time.Hour, CatchUp: c.catchUp})
			time.Sleep(23*time.Hour + 30*time.Minute)
			for i, in := range all {
				var ticks tally
				in.tell(ticks.note)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				want(t, "Run", in.job.Run(ctx, cron.Every(time.Hour), nothing), context.DeadlineExceeded)
				cancel()
				got := ticks.list()
				if i == 0 && len(got) != c.want || i == 1 && len(got) != 0 {
					t.Errorf("catch-up %d, instance %d: ran %v", c.catchUp, i, got)
				}
				for k := 1; k < len(got); k++ {
					if !got[k].After(got[k-1]) {
						t.Errorf("out of order: %v", got)
					}
				}
			}
		})
	}
}

// All instances come back at once: they share what was missed, and skip none of it because another
// one runs another part.
func TestInstancesShareWhatWasMissed(t *testing.T) {
	for name, overlap := range map[string]cron.Overlap{"skip": cron.OverlapSkip, "last": cron.OverlapLast, "allow": cron.OverlapAllow} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(3, 0, cron.Config{Late: 12 * time.Hour, CatchUp: 10, Overlap: overlap})
				time.Sleep(23*time.Hour + 30*time.Minute)
				deploy(t.Context(), 20*time.Minute, cron.Every(time.Hour), time.Minute, all...)
				books.wantEach(t, 10)
				if n := books.skipped[cron.ReasonOverlapped]; n > 0 {
					t.Errorf("%d ticks overlapped", n)
				}
			})
		})
	}
}

// Ticks that come due meanwhile do not end the wait of those that were missed.
func TestWhatWasMissedIsNotPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(3, 0, cron.Config{Late: 12 * time.Hour, CatchUp: 5, Overlap: cron.OverlapLast})
		time.Sleep(23*time.Hour + 30*time.Minute)
		deploy(t.Context(), 4*time.Hour, cron.Every(time.Hour), 10*time.Minute, all...)
		books.wantEach(t, 5+4)
	})
}

// Run stops making up when it is told to stop.
func TestRunStopsInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{Late: 12 * time.Hour, CatchUp: 99})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		runs := 0
		_ = in.job.Run(ctx, cron.Every(time.Hour), func(ctx context.Context) error { runs++; return idle(ctx, time.Minute) })
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Of the ticks that come due during a long run one waits, and no goroutine stays for
// those before it.
func TestOneTickWaitsForALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{Overlap: cron.OverlapLast, Late: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		var runs atomic.Int64
		ended := make(chan error, 1)
		go func() { // ends with ctx
			ended <- in.job.Run(ctx, cron.Every(time.Minute), func(ctx context.Context) error {
				if runs.Add(1) == 1 {
					return idle(ctx, 30*time.Minute+30*time.Second)
				}
				return nil
			})
		}()
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		if s, err := in.locks.Status(ctx, "job"); err != nil || len(s.Waiters) != 1 {
			t.Errorf("%d wait, want 1; %v", len(s.Waiters), err)
		}
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		books.mu.Lock()
		defer books.mu.Unlock()
		if skipped := books.skipped[cron.ReasonOverlapped]; skipped != 29 || runs.Load() < 4 {
			t.Errorf("%d skipped, %d runs", skipped, runs.Load())
		}
	})
}

// Ticks that are closer to one another than a timer may be early are all run.
func TestTicksCloseTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		deploy(t.Context(), 2*time.Second+5*time.Millisecond, cron.Every(20*time.Millisecond), 0, in)
		books.wantEach(t, 100)
	})
}

// An engine that is slower than ticks come makes some of them wait in vain, and not all of them.
func TestEngineSlowerThanTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{Overlap: cron.OverlapLast})
		in.engine.Delay(700 * time.Millisecond)
		deploy(t.Context(), time.Minute, cron.Every(time.Second), 0, in)
		if ran := books.ran(); ran < 5 {
			t.Errorf("%d ticks were run; skipped %v, failed %v", ran, books.skipped, books.failed)
		}
	})
}
