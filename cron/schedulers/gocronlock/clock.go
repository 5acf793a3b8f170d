package gocronlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
)

// WallClock is an option for gocron.NewScheduler. The timers of gocron run on the monotonic clock:
// if the clock is set forward, or the host is suspended, every job that waits at that time is called
// late by as much. With this option, gocron reads the wall clock every 30 s while it waits, and calls
// the job at its time. If the clock is set back, gocron waits until the time comes.
func WallClock() gocron.SchedulerOption { return wallClock(time.Now) }

func wallClock(now func() time.Time) gocron.SchedulerOption {
	return gocron.WithClock(clock{clockwork.NewRealClock(), now})
}

// clock is the clock of a scheduler. gocron waits for jobs with AfterFunc only.
type clock struct {
	clockwork.Clock
	now func() time.Time
}

// Now returns the time.
func (c clock) Now() time.Time { return c.now() }

// AfterFunc calls fn in its own goroutine when the wall clock shows a time that is d from now.
func (c clock) AfterFunc(d time.Duration, fn func()) clockwork.Timer {
	a := &alarm{now: c.now, fn: fn}
	a.Reset(d)
	return a
}

// alarm is a timer of AfterFunc.
type alarm struct {
	now func() time.Time
	fn  func()

	mu    sync.Mutex // guards the fields below
	at    time.Time  // when fn is called, without a monotonic reading; zero if fn is not called
	timer *time.Timer
}

// Reset implements clockwork.Timer.
func (a *alarm) Reset(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	active := a.stop()
	a.at = a.now().Round(0).Add(d)
	a.wait(d)
	return active
}

// Stop implements clockwork.Timer.
func (a *alarm) Stop() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stop()
}

// Chan implements clockwork.Timer. A timer of AfterFunc has no channel.
func (a *alarm) Chan() <-chan time.Time { return nil }

// stop does the work of Stop. The caller holds mu.
func (a *alarm) stop() (active bool) {
	if a.timer != nil {
		a.timer.Stop()
	}
	active, a.at = !a.at.IsZero(), time.Time{}
	return active
}

// wait looks at the clock again after d, or earlier. The caller holds mu.
func (a *alarm) wait(d time.Duration) {
	a.timer = time.AfterFunc(min(d, cron.ClockCheck), a.look)
}

// look calls fn if its time has come. time.AfterFunc calls look in a goroutine, which may have begun
// before a Stop or a Reset.
func (a *alarm) look() {
	a.mu.Lock()
	if a.at.IsZero() {
		a.mu.Unlock()
		return
	}
	if left := a.at.Sub(a.now()); left > 0 {
		a.timer.Stop()
		a.wait(left)
		a.mu.Unlock()
		return
	}
	a.at = time.Time{}
	a.mu.Unlock()
	a.fn()
}
