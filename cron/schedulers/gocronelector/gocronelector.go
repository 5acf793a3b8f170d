// Package gocronelector runs the jobs of a go-co-op/gocron scheduler on the leader of many
// instances.
//
//	elector := gocronelector.New(election.New(locks, "billing", nil))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocronlock.WallClock())
//	...
//	err = elector.Run(ctx, scheduler)
//
// One leader for all jobs is simple, but a change of leaders has two risks for a plain job. It may
// run twice for one scheduled time, on the old leader and on a new one whose clock is late. It may
// not run at all, if the time comes while nobody leads. If that matters, let the job also claim its
// ticks and catch up when a term begins:
//
//	job := cron.New(locks, "invoices", &cron.Config{CatchUp: 1, Late: 5 * time.Minute})
//	task, err := gocronlock.Task(job, schedule, bill)
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task),
//		gocron.WithStartAt(gocron.WithStartImmediately()))
//
// Each tick then runs once, on the instance that leads within Late of it. If that instance dies
// during the run, the tick is not run again.
//
// A OneTimeJob does not run in a second term of an instance, and is removed when its times have
// passed. If nobody leads at its time, it does not run. If it starts immediately, it runs on each
// instance that becomes the leader. To run a job once over all instances, schedule it every minute
// with gocronlock.Task, CatchUp and a cron.Schedule with that one tick.
//
// To spread jobs over all instances instead, use package gocronlock without an elector.
package gocronelector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/go-co-op/gocron/v2"
)

// Elector is a gocron.Elector. It is safe for concurrent use.
type Elector struct{ candidate *election.Candidate }

var _ gocron.Elector = (*Elector)(nil)

// New returns an elector for the candidate. It does no I/O. Call [Elector.Run] to campaign.
func New(candidate *election.Candidate) *Elector { return &Elector{candidate: candidate} }

// ErrNotLeader means that another instance leads, or none.
var ErrNotLeader = errors.New("not the leader")

// IsLeader returns nil if this instance leads at this moment, and ErrNotLeader otherwise. It is
// exact and does no I/O. gocron calls it before each run, but not during a run.
func (e *Elector) IsLeader(context.Context) error {
	if e.candidate.Term() == nil {
		return fmt.Errorf("%w: %v", ErrNotLeader, e.candidate.State())
	}
	return nil
}

// ErrShutdown means that the scheduler was shut down during a term.
var ErrShutdown = errors.New("the scheduler was shut down")

// Run campaigns until ctx ends and runs s while this instance leads. It starts s at the beginning
// of a term. At its end it stops the jobs, whose contexts end, and waits for them before another
// instance can lead. Run returns the error of ctx, the errors of election.Candidate.Run, or
// [ErrShutdown] within a second after s was shut down.
//
// gocron waits for jobs no longer than its stop timeout: 10 s, or gocron.WithStopTimeout. If jobs
// still run then, nobody can tell when they end, so the lock is not released. Run returns
// election.ErrStuck once election.Config.ShutdownTimeout has also passed; end the process then. If
// s was shut down, gocron reports such jobs only to the caller of Shutdown, and the lock is
// released.
func (e *Elector) Run(ctx context.Context, s gocron.Scheduler) error {
	return e.candidate.Run(ctx, func(ctx context.Context) error {
		removeOver(s)
		s.Start()
		shut := watch(ctx, s)
		if !shut {
			if err := s.StopJobs(); err != nil {
				select {} // block for ever: the term must not end while its jobs run
			}
		}
		awaitShutdown(s) // StopJobs does not wait if the scheduler is being shut down
		if shut {
			return ErrShutdown
		}
		if cause := context.Cause(ctx); !errors.Is(cause, fencelock.ErrLost) {
			return cause
		}
		return nil
	})
}

// removeOver removes one-time jobs that have run or whose times have passed: gocron's Start does
// not return if the scheduler has one.
func removeOver(s gocron.Scheduler) {
	for _, job := range s.Jobs() {
		once, ok := job.Schedule().(gocron.OneTimeJobSchedule)
		if !ok {
			continue
		}
		var over bool
		if n := len(once.StartAt); n > 0 {
			over = !once.StartAt[n-1].After(time.Now())
		} else {
			last, err := job.LastRunStartedAt()
			over = err != nil || !last.IsZero()
		}
		if over {
			_ = s.RemoveJob(job.ID()) // ignore the error: the job may have been removed already
		}
	}
}

// watch waits until ctx ends. It reports whether s was shut down before.
func watch(ctx context.Context, s gocron.Scheduler) (shut bool) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for s.Jobs() != nil { // nil only after a shutdown
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
	return true
}

// awaitShutdown waits for the jobs of a scheduler that is being shut down, as long as gocron waits.
func awaitShutdown(s gocron.Scheduler) {
	if s.Jobs() != nil {
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for errors.Is(s.ShutdownWithContext(over), context.Canceled) { // as long as jobs are being stopped
		time.Sleep(10 * time.Millisecond)
	}
}
