package cron

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
)

// ErrSkipped means that this instance did not run the tick, and was not meant to. The error is a
// *SkippedError.
var ErrSkipped = errors.New("tick was skipped")

// Reason says why a tick was skipped.
type Reason string

// The reasons.
const (
	ReasonClaimed    Reason = "already claimed"
	ReasonStarting   Reason = "another instance is about to start it"
	ReasonOverlapped Reason = "an earlier run still holds the job"
	ReasonTooLate    Reason = "too late"
	ReasonPaused     Reason = "the job is paused"
)

// SkippedError says why a tick was not run. It satisfies errors.Is(err, ErrSkipped).
type SkippedError struct {
	Job    string
	Tick   time.Time // the tick; for Job.Now the time of the call
	Reason Reason
	Held   *fencelock.HeldError // the acquisition that claimed the tick or runs the job, if a lock was the reason
	Pause  *Pause               // who paused the job; nil unless Reason is ReasonPaused
}

// Error returns the tick and the reason.
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

// stamp formats a tick.
func stamp(tick time.Time) string { return tick.UTC().Format(time.RFC3339Nano) }
