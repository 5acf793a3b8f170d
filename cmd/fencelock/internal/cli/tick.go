//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/cronhook"
)

// tickRun is the run of a tick that this process has claimed, as the record of the job tells of it.
// The zero value is a run without a tick, of which no record tells.
type tickRun struct {
	lock      *fencelock.Lock
	finishRun cronhook.Finish // nil until the run has begun
}

// taker returns a function that claims the tick of a schedule, takes the lock of the job with take,
// and begins the run in the job's record. The tick is the one that is nearest by this host's clock, in
// UTC. Others mean the same one if it is the nearest to their run too; two runs of one crontab that
// are at least a tick apart mean two.
func (t *tickRun) taker(job *cron.Job, every time.Duration, take func(context.Context, string) (*fencelock.Lock, error)) func(context.Context) (*fencelock.Lock, error) {
	return func(ctx context.Context) (*fencelock.Lock, error) {
		tick := time.Now().Round(every)
		if err := asBusy(cronhook.Claim(ctx, job, tick)); err != nil {
			return nil, err
		}
		lock, err := take(ctx, job.Name())
		if err != nil {
			return nil, err
		}
		if t.finishRun, err = cronhook.StartUnder(ctx, job, tick, lock); err != nil { // paused meanwhile, or the lock is lost
			lock.Release() // nothing was started; if this fails, the lease ends
			return nil, asBusy(err)
		}
		t.lock = lock
		return lock, nil
	}
}

// asBusy makes a tick that another host has claimed, or a paused job, look like a lock that is busy,
// with -q and -E for both. A tick that is too late by the answer does not: nobody runs it.
func asBusy(err error) error {
	skipped, ok := errors.AsType[*cron.SkippedError](err)
	switch {
	case !ok:
		return err
	case skipped.Reason == cron.ReasonTooLate:
		return fmt.Errorf("%w: the server did not answer within half a tick: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrHeld, err)
}

// finish writes into the record how the command has ended, nil being well. It is called before the
// lock is released, so that nobody takes the run for one that was lost. A run without an outcome
// counts as lost.
func (t *tickRun) finish(err error) {
	if t.finishRun != nil {
		_ = withinLease(t.lock, func() error { return t.finishRun(err) })
	}
}
