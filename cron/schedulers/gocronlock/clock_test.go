package gocronlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/cron/schedulers/gocronlock"
	"github.com/go-co-op/gocron/v2"
)

// A job is called at its time by the wall clock, although the clock was set, or the host was
// suspended, during the wait. Without WallClock the first case is 70 s late.
func TestWallClock(t *testing.T) {
	for name, c := range map[string]struct{ after, step time.Duration }{
		"suspended shortly before": {58*time.Minute + 22*time.Second, 70 * time.Second},
		"suspended long before":    {5 * time.Minute, 40 * time.Minute},
		"suspended at the tick":    {59*time.Minute + 50*time.Second, 20 * time.Second},
		"set forward by two ticks": {10 * time.Minute, 109 * time.Minute},
		"set back":                 {50 * time.Minute, -20 * time.Minute},
		"set back shortly before":  {59*time.Minute + 59*time.Second, -5 * time.Second},
		"neither":                  {30 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var step atomic.Int64
				now := func() time.Time { return time.Now().Add(time.Duration(step.Load())).Round(0) }
				s, err := gocron.NewScheduler(gocronlock.WallClockOf(now))
				if err != nil {
					t.Fatal(err)
				}
				calls := make(chan time.Time, 100)
				if _, err := s.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func() { calls <- now() })); err != nil {
					t.Fatal(err)
				}
				s.Start()
				defer func() { _ = s.Shutdown() }()
				began := now()
				time.Sleep(c.after)
				step.Store(int64(c.step))
				due := began.Add(time.Hour)
				if awake := now(); due.Before(awake) { // the tick came in the suspend
					due = awake
				}
				if late := (<-calls).Sub(due); late < 0 || late > 30*time.Second {
					t.Errorf("called %v late", late)
				}
				if next := <-calls; !next.Equal(next.Truncate(time.Hour)) {
					t.Errorf("then called at %v", next)
				}
			})
		})
	}
}
