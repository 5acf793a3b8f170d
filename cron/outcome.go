package cron

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
)

var (
	// ErrSkipped says that the tick was not run here, as it should be. The error
	// is a *SkippedError.
	ErrSkipped = errors.New("tick was skipped")
	// ErrAtMost is the cause of the end of a run that took longer than
	// Config.AtMost.
	ErrAtMost = errors.New("the run took longer than it may")
)

// Reason is why a tick was skipped.
type Reason string

// The reasons.
const (
	Claimed    Reason = "already claimed"
	Overlapped Reason = "an earlier run still holds the job"
	TooLate    Reason = "too late"
)

// SkippedError says why a tick was not run. It satisfies
// errors.Is(err, ErrSkipped).
type SkippedError struct {
	Job       string
	Scheduled time.Time
	Reason    Reason
	Held      *fencelock.HeldError // who claimed or holds it, as far as the engine knows; nil if TooLate
}

// Error tells the tick and the reason.
func (e *SkippedError) Error() string {
	text := fmt.Sprintf("%q at %s was skipped: %s", e.Job, stamp(e.Scheduled), e.Reason)
	if e.Held != nil {
		text += ": " + e.Held.Error()
	}
	return text
}

// Is makes errors.Is(err, ErrSkipped) true.
func (e *SkippedError) Is(target error) bool { return target == ErrSkipped }

// stamp is a tick as text.
func stamp(tick time.Time) string { return tick.UTC().Format(time.RFC3339Nano) }

// Outcome is how a tick ended on this instance.
type Outcome struct {
	Job       string
	Scheduled time.Time
	Started   time.Time     // when the run began; zero if it did not
	Took      time.Duration // how long it ran
	Token     int64         // the fencing token of the run; 0 if it did not begin
	Err       error         // what the run returned, a *SkippedError, or why the claim failed
}

// Skipped reports whether the tick was skipped, and why.
func (o Outcome) Skipped() (Reason, bool) {
	if skipped, ok := errors.AsType[*SkippedError](o.Err); ok && o.Started.IsZero() {
		return skipped.Reason, true
	}
	return "", false
}

// report tells the hook and the logger.
func (j Job) report(o Outcome) {
	if j.OnTick != nil {
		j.OnTick(o)
	}
	log := j.Logger.With("job", o.Job, "tick", o.Scheduled)
	reason, skipped := o.Skipped()
	switch {
	case skipped:
		log.Info("tick skipped", slog.String("reason", string(reason)), "error", o.Err)
	case o.Err != nil:
		log.Warn("tick failed", "token", o.Token, "took", o.Took, "error", o.Err)
	default:
		log.Debug("tick run", "token", o.Token, "took", o.Took)
	}
}
