package cronhook

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
)

// Begin begins an attempt to run a tick, for a caller whose work starts later, such as a command.
// It acquires the lock with take and records the attempt under it. Until Attempt.Started, the tick
// is not claimed: if the caller fails or dies, the next caller runs it.
//
// Begin returns a *cron.SkippedError if the tick is claimed, too late, or the job is paused; the
// error of take.Acquire; fencelock.ErrUnavailable if the attempt could not be recorded; and
// fencelock.ErrLost if the lock was lost. In these cases it has released the lock.
var Begin func(ctx context.Context, job any, tick time.Time, take Take) (Attempt, error)

// Take says how Begin acquires the lock of the job.
type Take struct {
	// Acquire acquires the lock with the given name, which is that of the job.
	Acquire func(ctx context.Context, name string) (*fencelock.Lock, error)

	Shared bool          // others may hold the lock at the same time
	AtOnce bool          // Acquire does not wait, and Begin does not retry while the engine is unavailable
	Wait   time.Duration // how long Begin retries; 0 means until the tick is too late
}

// Attempt is an attempt to run a tick. It belongs to one goroutine.
type Attempt interface {
	// Lock returns the lock that Begin has acquired. The caller releases it after Finish.
	Lock() *fencelock.Lock

	// Started tells that the work has started. It does not block: the claim is recorded meanwhile.
	Started()

	// Finish ends the attempt. err is the error of the work, or why it was not started. Without
	// Started, the tick stays open. Otherwise Finish records the outcome and returns err, joined
	// with ErrUnrecorded and the *LostError if they apply. If the engine is unreachable, it returns
	// after at most 11 s. Further calls do nothing and return err.
	Finish(err error) error
}

// ErrUnrecorded means that the work ran, but the record may not say so: another instance may run
// the tick again.
var ErrUnrecorded = errors.New("the run could not be recorded, and another host may run this tick again")
