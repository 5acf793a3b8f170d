// Package gocronlock runs each tick of a go-co-op/gocron job on one of many instances only. A
// gocron.Locker releases its lock when the job ends, so an instance whose clock is late runs a fast
// job again. Here each tick is claimed; see package cron.
//
//	schedule, err := robfig.ParseStandard("0 3 * * *")
//	task, err := gocronlock.Task(job, schedule, bill)
//	scheduler, err := gocron.NewScheduler(gocronlock.WallClock())
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task))
//
// Most programs should use [Task]: the context of its work ends if the lock is lost. Use it also
// together with package gocronelector. [Options] is for jobs whose function cannot be changed.
//
// gocron does not pass the scheduled time to a job, so both need the schedule a second time:
//
//   - for a CronJob, a robfig/cron schedule with the same expression
//   - for a DurationJob, cron.Every. Start the job on a multiple of the duration with [Multiple],
//     otherwise every call is too late for its tick and the work does not run.
//   - for a OneTimeJob, a cron.Schedule with that one tick
//
// Times are local, as in gocron. If the scheduler uses another zone, the schedule must use it too.
// Job.RunNow does not run a tick a second time, and fails if no tick is near.
//
// Create the scheduler with [WallClock]. Without it, gocron calls a job too late for its tick if the
// clock was set forward, or the host was suspended, for more than Config.Late during the wait.
//
// gocron.WithLimitedRuns counts calls, not runs. A call without a due tick uses up one of them, and
// gocron removes the job after the last one. So do not combine it with gocron.WithStartImmediately;
// start the job on a tick, with [Multiple], or use a gocron.OneTimeJob. Such calls are reported to
// Config.OnTick and Config.Logger.
//
// When clocks are set back, a local time occurs twice. gocron calls a CronJob only at the first
// occurrence, but the schedule has both. The second one is run only if Config.CatchUp finds it.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// Task returns a function for gocron.NewTask that runs fn for every tick that this instance claims.
// With Config.CatchUp it also runs missed ticks, one after the other, when gocron calls the
// function; with gocron.WithStartAt(gocron.WithStartImmediately()) that is when the scheduler
// starts.
//
// The function returns the error of fn to gocron. For a skipped tick it returns nil; skipped ticks
// are reported to Config.OnTick and Config.Logger. If gocron calls it more than Config.Late after
// the last tick, it returns a fencelock.ErrInvalid that says what to change.
func Task(job *cron.Job, schedule cron.Schedule, fn func(ctx context.Context) error) (func(ctx context.Context) error, error) {
	due, err := job.Due(schedule)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ticks, err := take(job, due, time.Now())
		if errors.Is(err, cron.ErrSkipped) {
			return nil
		}
		return errors.Join(err, due.TickAll(ctx, ticks, fn))
	}, nil
}

// take returns the ticks that are due at a call of gocron. If there are none, it reports and
// returns the reason: a *cron.SkippedError if the tick was taken before or nothing was missed, and
// a fencelock.ErrInvalid if no tick is near, which means that gocron has another schedule.
func take(job *cron.Job, due *cron.Due, now time.Time) ([]time.Time, error) {
	ticks := due.Take(now)
	if len(ticks) > 0 {
		return ticks, nil
	}
	var err error = &cron.SkippedError{Job: job.Name(), Tick: now.UTC(), Reason: NoTick}
	if due.CatchUp() == 0 && !due.Near(now) {
		err = fmt.Errorf("%w: %q was called at %s, but no tick of its schedule is near: start a DurationJob with gocron.WithStartAt(gocronlock.Multiple(d)), give a scheduler in another zone a schedule in that zone, and create the scheduler with gocronlock.WallClock() if the host can be suspended or its clock can be set",
			fencelock.ErrInvalid, job.Name(), now.Format(time.RFC3339))
	}
	due.Report(now, err)
	return nil, err
}

// NoTick is the reason of a call that ran no tick: the tick was already taken, or none has come due
// since the job was created or last called.
const NoTick cron.Reason = "no tick is due"

// Multiple starts a DurationJob of d at the next multiple of d since the zero time. On all
// instances that is a tick of cron.Every(d).
func Multiple(d time.Duration) gocron.StartAtOption {
	return gocron.WithStartDateTime(cron.Every(d).Next(time.Now().Round(0)))
}

// ErrUnknown means that gocron did not report how a run ended, because another listener of the job
// replaced the one of gocronlock.
var ErrUnknown = errors.New("gocron did not report how the run ended: another listener of the job replaced the one of gocronlock")

// Options returns the options for Scheduler.NewJob that claim the ticks of one job. The lock has
// the name of job, whatever gocron calls it. The work is not notified if its lock is lost; the loss
// is reported to Config.OnTick and Config.Logger afterwards.
//
// The options set the listeners AfterJobRuns and AfterJobRunsWithError to learn how a run ended. If
// the job sets one of them after these options, its runs are reported with [ErrUnknown]. gocron
// calls the locker once per call and does not distinguish runs, so Config.CatchUp and
// cron.OverlapAllow are a fencelock.ErrInvalid here.
func Options(job *cron.Job, schedule cron.Schedule) ([]gocron.JobOption, error) {
	due, err := job.Due(schedule)
	if err != nil {
		return nil, err
	}
	if due.CatchUp() > 0 || due.RunsOverlap() {
		return nil, fmt.Errorf("%w: %q: Options does not support CatchUp and OverlapAllow: use gocronlock.Task", fencelock.ErrInvalid, job.Name())
	}
	l := &locker{job: job, due: due, result: ErrUnknown}
	return []gocron.JobOption{
		gocron.WithDistributedJobLocker(l),
		gocron.WithEventListeners(
			gocron.AfterJobRuns(func(uuid.UUID, string) { l.ended(nil) }),
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { l.ended(err) }),
		),
	}, nil
}

// locker is a gocron.Locker for one job, whose runs do not overlap.
type locker struct {
	job *cron.Job
	due *cron.Due

	mu     sync.Mutex // guards result
	result error      // the result of the work until Unlock; ErrUnknown at other times
}

// Lock claims the tick that is due.
func (l *locker) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	ticks, err := take(l.job, l.due, time.Now())
	if err != nil {
		return nil, err
	}
	finish, err := l.due.Start(ctx, ticks[0])
	if err != nil {
		return nil, err
	}
	return lock{l, finish}, nil
}

// ended stores how the work ended.
func (l *locker) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result = err
}

// lock is a run that gocron holds.
type lock struct {
	locker *locker
	finish func(err error) error
}

// Unlock finishes the run. gocron calls it after the listeners.
func (l lock) Unlock(context.Context) error {
	l.locker.mu.Lock()
	err := l.locker.result
	l.locker.result = ErrUnknown
	l.locker.mu.Unlock()
	return l.finish(err)
}
