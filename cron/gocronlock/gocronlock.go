// Package gocronlock runs the jobs of a go-co-op/gocron scheduler on exactly one
// of many instances. gocron's own contract for lockers releases the lock with the
// job, so a fast job runs again on an instance whose clock is late; here every
// tick is claimed (see package cron).
//
//	schedule, err := robfig.ParseStandard("0 3 * * *")
//	task, err := gocronlock.Task(job, schedule, bill)
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task))
//
// Most programs should use [Task], whose work learns that it lost its lock. [New]
// makes a gocron.Locker, for jobs that are to stay as they are.
//
// gocron tells neither of them for which time it woke up, so both need the
// schedule once more: a robfig/cron schedule for a CronJob; cron.Every for a
// DurationJob, which should be started on its multiples (gocron.WithStartAt) so
// that it is not late. Times are local, like gocron's; a scheduler in another
// zone needs a schedule in that zone. Job.RunNow is off the schedule and skipped.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/cron"
	"github.com/go-co-op/gocron/v2"
)

// Task returns a function for gocron.NewTask that runs fn for every tick that this
// instance claims; several in a row if job.CatchUp makes up for missed ones. It
// returns fn's error to gocron, and nil for a tick that was skipped: that is told
// by Job.OnTick and Job.Logger.
func Task(job cron.Job, schedule cron.Schedule, fn func(ctx context.Context) error) (func(ctx context.Context) error, error) {
	due, err := job.Due(schedule)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var failed error // a tick that fails keeps no other one from running
		for _, tick := range due.Take(time.Now()) {
			if err := job.Tick(ctx, tick, fn); err != nil && !errors.Is(err, cron.ErrSkipped) {
				failed = errors.Join(failed, err)
			}
		}
		return failed
	}, nil
}

// New returns a locker for one job: use it with gocron.WithDistributedJobLocker.
// job.Name is the name of the lock, whatever gocron calls the job; job.CatchUp has
// no effect, since gocron runs the job once for each lock. The work does not learn
// that its lock was lost: only Job.OnTick and Job.Logger do, afterwards.
func New(job cron.Job, schedule cron.Schedule) (gocron.Locker, error) {
	job.CatchUp = 0
	due, err := job.Due(schedule)
	if err != nil {
		return nil, err
	}
	return &locker{job: job, due: due}, nil
}

type locker struct {
	job cron.Job
	due *cron.Due
}

// Lock claims the tick that has come due.
func (l *locker) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	ticks := l.due.Take(time.Now())
	if len(ticks) == 0 {
		return nil, fmt.Errorf("%w: %q: no tick of its schedule is due; a DurationJob needs gocron.WithStartAt at a multiple of its duration",
			cron.ErrSkipped, l.job.Name)
	}
	run, err := l.job.Start(ctx, ticks[0])
	if err != nil {
		return nil, err
	}
	return lock{run}, nil
}

// lock is a run that gocron holds.
type lock struct{ run *cron.Run }

// Unlock ends the run. It returns an error if the lock was lost before.
func (l lock) Unlock(context.Context) error { return l.run.Finish(nil) }
