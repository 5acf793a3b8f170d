package lockmetrics

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
)

// Failures are the values of error.type of a failed acquisition, release or decision.
var Failures = []string{"held", "timeout", "canceled", "unavailable", "config", "invalid", Other}

// Failure returns the error.type of err, or "" if it is nil. A wait that the caller's deadline ended
// is a timeout if the name was held, and unavailable if the engine did not answer.
func Failure(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, fencelock.ErrConfig):
		return "config"
	case errors.Is(err, fencelock.ErrInvalid), errors.Is(err, fencelock.ErrUnsupported):
		return "invalid"
	case errors.Is(err, fencelock.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, fencelock.ErrHeld):
		return "held"
	}
	return Other
}

// HoldEnds are the values of hold.end.
var HoldEnds = []string{"released", "max_hold", "lost"}

// HoldEnd returns how a hold ended.
func HoldEnd(d fencelock.TraceHoldEnd) string {
	switch {
	case d.Max != nil:
		return "max_hold"
	case d.Lost != nil:
		return "lost"
	}
	return "released"
}

// Losses are the values of error.type of a lost lock.
var Losses = []string{"expired", "broken", "gone"}

// Loss returns the error.type of a loss: expired if no renewal was acknowledged in time, broken
// after a Break, and gone if the engine does not have the lock any more.
func Loss(lost *fencelock.LostError) string {
	switch {
	case errors.Is(lost.Reason, hold.ErrDeadline):
		return "expired"
	case errors.Is(lost.Reason, driver.ErrBroken):
		return "broken"
	}
	return "gone"
}

// Ran reports whether an outcome of a tick is that of a run.
func Ran(outcome string) bool { return outcome == "ok" || outcome == "failed" }

// Decision returns the result of a decision of a rate limiter.
func Decision(d fencelock.TraceRate) string {
	switch {
	case d.Granted > 0:
		return "granted"
	case d.Err != nil:
		return "failed"
	}
	return "limited"
}
