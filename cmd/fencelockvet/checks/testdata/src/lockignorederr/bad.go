// Package lockignorederr has errors that are dropped, and such that are not.
package lockignorederr

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/semaphore"
)

func work(ctx context.Context) error { return ctx.Err() }

func bad01(ctx context.Context, locks *fencelock.Locker) {
	locks.Do(ctx, "a", work) // want `the error of Locker.Do is not used`
}

func bad02(ctx context.Context, locks *fencelock.Locker) {
	_ = locks.TryDo(ctx, "a", work) // want `the error of Locker.TryDo is assigned to _`
}

func bad03(ctx context.Context, locks *fencelock.Locker) {
	lock, _ := locks.Acquire(ctx, "a") // want `the error of Locker.Acquire is assigned to _`
	defer lock.Release()
}

func bad04(ctx context.Context, locks *fencelock.Locker) {
	locks.AcquireAll(ctx, "a", "b") // want `the error of Locker.AcquireAll is not used`
}

func bad05(ctx context.Context, locks *fencelock.Locker) {
	go locks.DoAll(ctx, []string{"a"}, work) // want `the error of Locker.DoAll is lost in a go statement`
}

func bad06(lock *fencelock.Lock, set *fencelock.LockSet) {
	lock.Err()    // want `the result of Lock.Err is not used`
	_ = set.Err() // want `the result of LockSet.Err is assigned to _`
}

func bad07(ctx context.Context, s *semaphore.Semaphore) {
	s.Do(ctx, 1, work)             // want `semaphore.Semaphore.Do is not used`
	permit, _ := s.Acquire(ctx, 1) // want `semaphore.Semaphore.Acquire is assigned to _`
	permit.Release()
}

func bad08(ctx context.Context, locks *fencelock.Locker, c *election.Candidate) {
	go c.Run(ctx, work)                    // want `election.Candidate.Run is lost in a go statement`
	go election.Run(ctx, locks, "a", work) // want `election.Run is lost in a go statement`
}

func bad09(ctx context.Context, job *cron.Job, at time.Time) {
	defer job.Tick(ctx, at, work) // want `cron.Job.Tick is lost in a defer statement`
	_, _ = 1, job.Now(ctx, work)  // want `cron.Job.Now is assigned to _`
}

func bad10(ctx context.Context, s *idempotent.Store) int {
	n, _ := idempotent.Do(ctx, s, "a", func(ctx context.Context) (int, error) { return 1, nil }) // want `idempotent.Do is assigned to _`
	return n
}
