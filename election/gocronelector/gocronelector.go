// Package gocronelector lets the leader among many instances run the jobs of
// go-co-op/gocron schedulers.
//
//	elector := gocronelector.New(election.New(locks, "billing", nil))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	...
//	err = elector.Run(ctx, scheduler)
//
// One leader for all jobs is simple, and free of clock skew. Package gocronlock
// spreads the jobs over the instances instead.
package gocronelector

import (
	"context"
	"errors"
	"fmt"

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

// Run campaigns until ctx ends, and keeps s running while this instance leads: it
// starts s with the term, and at its end stops the jobs, whose contexts end, and
// waits for them before the next leader can begin. It returns ctx's error, or
// what election.Candidate.Run returns.
//
// Jobs that go on for longer than gocron's stop timeout (10 s unless
// gocron.WithStopTimeout says otherwise) are stuck: nobody can tell when they are
// done, so the name is not given back. Run then fails with election.ErrStuck,
// once election.Config.Shutdown has passed as well, and the process should end.
func (e *Elector) Run(ctx context.Context, s gocron.Scheduler) error {
	return e.candidate.Run(ctx, func(ctx context.Context) error {
		s.Start()
		<-ctx.Done()
		if err := s.StopJobs(); err != nil {
			select {} // never ends: the term must not end while its jobs run
		}
		if cause := context.Cause(ctx); !errors.Is(cause, fencelock.ErrLost) {
			return cause
		}
		return nil
	})
}
