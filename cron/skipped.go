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
	Job    string
	Tick   time.Time // the time of the call of Job.Now
	Reason Reason
	Held   *fencelock.HeldError // who claimed or holds it, if a lock says so
	Pause  *Pause               // who paused it; nil unless Reason is ReasonPaused
}

// Error tells the tick and the reason.
func (e *SkippedError) Error() string {
	text := fmt.Sprintf("%q at %s was skipped: %s", e.Job, stamp(e.Tick), e.Reason)
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
