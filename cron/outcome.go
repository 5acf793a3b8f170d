package cron

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
)

// ErrSkipped says that the tick was not run here, as it should be. The error is a
// *SkippedError.
var ErrSkipped = errors.New("tick was skipped")

// Reason is why a tick was skipped.
type Reason string

// The reasons.
const (
	ReasonClaimed    Reason = "already claimed"
	ReasonOverlapped Reason = "an earlier run still holds the job"
	ReasonTooLate    Reason = "too late"
	ReasonPaused     Reason = "the job is paused"
)

// SkippedError says why a tick was not run. It satisfies
// errors.Is(err, ErrSkipped).
type SkippedError struct {
	Job       string
	Scheduled time.Time
	Reason    Reason
	Held      *fencelock.HeldError // who claimed or holds it, if a lock says so
	Pause     *Pause               // who paused it; nil unless Reason is ReasonPaused
}

// Error tells the tick and the reason.
func (e *SkippedError) Error() string {
	text := fmt.Sprintf("%q at %s was skipped: %s", e.Job, stamp(e.Scheduled), e.Reason)
	if e.Held != nil {
		text += ": " + e.Held.Error()
	}
	if e.Pause != nil {
		text += fmt.Sprintf(" since %s by %s: %s", stamp(e.Pause.Since), e.Pause.Host, e.Pause.Reason)
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
	Scheduled time.Time     // the time of the tick; that of the call for Job.Now
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
