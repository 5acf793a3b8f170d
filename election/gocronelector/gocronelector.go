// Package gocronelector lets the leader among many instances run the jobs of
// go-co-op/gocron schedulers.
//
//	elector := gocronelector.New(election.New(locks, "billing", nil))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	...
//	err = elector.Run(ctx, scheduler)
//
// One leader for all jobs is simple, but around a hand-over a plain job may run twice
// for one time, on an old leader and on a new one whose clock is late, or not at all, if
// the time comes while nobody leads. Jobs for which that matters claim their ticks too,
// and are looked after when a term begins:
//
//	job := cron.New(locks, "invoices", &cron.Config{CatchUp: 1, Late: 5 * time.Minute})
//	task, err := gocronlock.Task(job, schedule, bill)
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task),
//		gocron.WithStartAt(gocron.WithStartImmediately()))
//
// Each tick then runs once, by whoever leads within Late of it. An instance that dies
// in the middle of a run takes the tick along.
//
// A OneTimeJob runs in no second term of an instance, and is removed when its times
// have passed. If nobody leads at its time, it does not run; if it is to start at
// once, it runs on each instance that comes to lead. A job every minute, with
// gocronlock.Task, CatchUp and the schedule cron.Once(t), runs once on all instances
// together.
//
// Package gocronlock without an elector spreads the jobs over the instances.
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

// New returns an elector whose leader is that of the candidate. It does no I/O:
// somebody must Run it.
func New(candidate *election.Candidate) *Elector { return &Elector{candidate: candidate} }

// ErrNotLeader says that another instance leads, or nobody does.
var ErrNotLeader = errors.New("not the leader")

// IsLeader returns nil if this instance leads at this instant, and ErrNotLeader
// otherwise. It is exact and does no I/O. gocron asks it before each run, and
// never during one.
func (e *Elector) IsLeader(context.Context) error {
	if e.candidate.Term() == nil {
		return fmt.Errorf("%w: %v", ErrNotLeader, e.candidate.State())
	}
	return nil
}

// ErrShutdown says that the scheduler was shut down while it was to run jobs.
var ErrShutdown = errors.New("the scheduler was shut down")

// Run campaigns until ctx ends, and keeps s running while this instance leads: it
// starts s with the term, and at its end stops the jobs, whose contexts end, and
// waits for them before the next leader can begin. It returns ctx's error, or
// what election.Candidate.Run returns, or [ErrShutdown] within a second after s was shut
// down: a scheduler that runs nothing leads no longer.
//
// Jobs that go on for longer than gocron's stop timeout (10 s unless
// gocron.WithStopTimeout says otherwise) are stuck: nobody can tell when they are
// done, so the name is not given back. Run then fails with election.ErrStuck,
// once election.Config.ShutdownTimeout has passed as well, and the process should end. Of a scheduler
// that was shut down gocron says so to the caller of Shutdown alone, and the name is given back.
func (e *Elector) Run(ctx context.Context, s gocron.Scheduler) error {
	return e.candidate.Run(ctx, func(ctx context.Context) error {
		removeOver(s)
		s.Start()
		shut := watch(ctx, s)
		if !shut {
			if err := s.StopJobs(); err != nil {
				select {} // never ends: the term must not end while its jobs run
			}
		}
		awaitShutdown(s) // of a scheduler that is being shut down, StopJobs waits for nothing
		if shut {
			return ErrShutdown
		}
		if cause := context.Cause(ctx); !errors.Is(cause, fencelock.ErrLost) {
			return cause
		}
		return nil
	})
}

// removeOver removes one-time jobs that have run, or whose times have passed: with one
// of these gocron's Start does not return.
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
			_ = s.RemoveJob(job.ID()) // or somebody else has
		}
	}
}

// watch waits until ctx ends, and reports whether s was shut down before.
func watch(ctx context.Context, s gocron.Scheduler) (shut bool) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for s.Jobs() != nil { // not nil, even without jobs, until s is shut down
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
	return true
}

// awaitShutdown waits for the jobs of a scheduler that was shut down, no longer than that does.
func awaitShutdown(s gocron.Scheduler) {
	if s.Jobs() != nil {
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for errors.Is(s.ShutdownWithContext(over), context.Canceled) { // as long as jobs are stopped
		time.Sleep(10 * time.Millisecond)
	}
}
