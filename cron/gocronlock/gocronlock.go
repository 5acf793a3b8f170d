// Package gocronlock runs the jobs of a go-co-op/gocron scheduler on exactly one
// of many instances. gocron's own contract for lockers releases the lock with the
// job, so a fast job runs again on an instance whose clock is late; here every
// tick is claimed (see package cron).
//
//	schedule, err := robfig.ParseStandard("0 3 * * *")
//	task, err := gocronlock.Task(job, schedule, bill)
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task))
//
// Most programs should use [Task], whose work learns that it lost its lock, and
// which is the one to use under a leader (package gocronelector). [Options] is for
// jobs that are to stay as they are.
//
// gocron tells neither of them for which time it woke up, so both need the
// schedule once more: a robfig/cron schedule for a CronJob; cron.Every for a
// DurationJob, which must be started on its multiples, or its ticks are too late
// and it does not run: use [Multiple]; cron.Once for a OneTimeJob. Times are local,
// like gocron's; a scheduler in another zone needs a schedule in that zone.
// Job.RunNow does not run a tick that has been run, and fails off the schedule.
//
// gocron counts its calls and not the runs: a call for which no tick is due uses up one
// of gocron.WithLimitedRuns, and after the last one the job is gone. So do not combine
// WithLimitedRuns with gocron.WithStartImmediately; begin such a job on a tick, with
// [Multiple] or a gocron.OneTimeJob. Config.OnTick and Config.Logger are told of each
// such call.
//
// When clocks are set back, gocron calls a CronJob at the first of two equal local times alone. Its
// schedule has both: the second is made up for if CatchUp finds it.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/internal/cronhook"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// Task returns a function for gocron.NewTask that runs fn for every tick that this
// instance claims; several in a row if job.CatchUp makes up for missed ones. Those
// are looked for when gocron calls the function: with
// gocron.WithStartAt(gocron.WithStartImmediately()), when the scheduler starts.
//
// The function returns fn's error to gocron, and nil for a tick that was skipped:
// that is told by Config.OnTick and Config.Logger. If gocron calls it longer than Config.Late
// after the last tick, it fails with a fencelock.ErrInvalid that says what to do.
func Task(job *cron.Job, schedule cron.Schedule, fn func(ctx context.Context) error) (func(ctx context.Context) error, error) {
	due, err := cronhook.NewDue(job, schedule)
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

// take returns the ticks for which gocron has called at now. If there are none, it reports and
// returns why: a *cron.SkippedError if the tick has been taken, or a job that makes up for missed
// ticks has missed none, and a fencelock.ErrInvalid if no tick of the schedule could be run at
// that time. That is so at every call if gocron wakes up at other times.
func take(job *cron.Job, due cronhook.Due, now time.Time) ([]time.Time, error) {
	ticks := due.Take(now)
	if len(ticks) > 0 {
		return ticks, nil
	}
	var err error = &cron.SkippedError{Job: job.Name(), Tick: now.UTC(), Reason: NoTick}
	if due.CatchUp() == 0 && !due.Near(now) {
		err = fmt.Errorf("%w: %q was called at %s, too late for every tick of its schedule: a DurationJob needs gocron.WithStartAt(gocronlock.Multiple(d)), and a scheduler in another zone a schedule in that zone",
			fencelock.ErrInvalid, job.Name(), now.Format(time.RFC3339))
	}
	due.Report(now, err)
	return nil, err
}

// NoTick is why a call of gocron's ran no tick: the tick was taken before, or no tick came due
// since the job was made or last called.
const NoTick cron.Reason = "no tick is due"

// Multiple starts a DurationJob of d at the next multiple of d since the zero time,
// which is a tick of cron.Every(d) on all instances.
func Multiple(d time.Duration) gocron.StartAtOption {
	return gocron.WithStartDateTime(cron.Every(d).Next(time.Now().Round(0)))
}

// ErrUnknown says that nobody told how a run ended.
var ErrUnknown = errors.New("gocron did not tell how the run ended: a listener of the job took the place of that of gocronlock")

// Options returns the options of one job that claim its ticks, for
// Scheduler.NewJob. The name of job is that of the lock, whatever gocron calls the job.
// The work does not learn that its lock was lost: only Config.OnTick and Config.Logger do,
// afterwards.
//
// They hear how a run ended by the listeners AfterJobRuns and AfterJobRunsWithError.
// A job that sets one of these after the options is reported with [ErrUnknown].
// gocron runs a job once for each lock and does not tell runs apart, so job.CatchUp and
// cron.OverlapAllow are a fencelock.ErrInvalid.
func Options(job *cron.Job, schedule cron.Schedule) ([]gocron.JobOption, error) {
	due, err := cronhook.NewDue(job, schedule)
	if err != nil {
		return nil, err
	}
	if due.CatchUp() > 0 || due.RunsOverlap() {
		return nil, fmt.Errorf("%w: %q: CatchUp and OverlapAllow need gocronlock.Task", fencelock.ErrInvalid, job.Name())
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

// locker is a gocron.Locker for one job, which runs once at a time.
type locker struct {
	job *cron.Job
	due cronhook.Due

	mu     sync.Mutex // guards result
	result error      // of the work, from its end to Unlock; ErrUnknown at other times
}

// Lock claims the tick that has come due.
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

// ended notes how the work ended.
func (l *locker) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result = err
}

// lock is a run that gocron holds.
type lock struct {
	locker *locker
	finish cronhook.Finish
}

// Unlock ends the run, after the listeners have heard how the work ended.
func (l lock) Unlock(context.Context) error {
	l.locker.mu.Lock()
	err := l.locker.result
	l.locker.result = ErrUnknown
	l.locker.mu.Unlock()
	return l.finish(err)
}
