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
)

// tickRun is the run of a tick by this process. The zero value is a run without a tick.
type tickRun struct {
	attempt    *cron.Attempt // nil until the attempt is recorded
	unrecorded error         // why the tick may be run again although the command ran
}

// taker returns a function that acquires the lock and records that this process is about to run a
// tick: the one nearest to the time of this host, in UTC. Hosts whose runs start at about the same
// time have the same tick; two runs of one crontab that are at least a tick apart have two. The
// tick is claimed when the command has started.
func (t *tickRun) taker(job *cron.Job, every time.Duration, take cron.Take) func(context.Context) (*fencelock.Lock, error) {
	return func(ctx context.Context) (_ *fencelock.Lock, err error) {
		if t.attempt, err = job.Begin(ctx, time.Now().Round(every), take); err != nil {
			return nil, asBusy(err)
		}
		return t.attempt.Lock(), nil
	}
}

// started tells that the command has started.
func (t *tickRun) started() {
	if t.attempt != nil {
		t.attempt.Started()
	}
}

// asBusy makes a claimed tick or a paused job look like a busy lock, to which -q and -E apply. A
// tick that has passed before the server answered is an unreachable server, since no host runs it.
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

// finish records how the command ended, or why it was not started; nil means that it succeeded. It
// is called before the lock is released: a run without a recorded outcome counts as lost.
func (t *tickRun) finish(err error) {
	if t.attempt == nil {
		return
	}
	end := withinLease(t.attempt.Lock(), func() error { return t.attempt.Finish(err) })
	if errors.Is(end, cron.ErrUnrecorded) {
		t.unrecorded = fmt.Errorf("%w: %w", driver.ErrUnavailable, end)
	}
}

// over returns the error of the run whose command ended as out says.
func (t *tickRun) over(out outcome) error {
	if t.unrecorded != nil && !out.Lost {
		return fmt.Errorf("the command exited with code %d, but %w", exitCode(out.err), t.unrecorded)
	}
	return out.err
}
