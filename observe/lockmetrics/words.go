package lockmetrics

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
)

// Failure returns the error.type of a failed acquisition, release or decision, or "" if err is nil. A
// wait that the caller's deadline ended is a timeout if the name was held, and unavailable if the
// engine did not answer.
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
	return other
}

// holdEnd returns how a hold ended.
func holdEnd(d fencelock.TraceHoldEnd) string {
	switch {
	case d.Max != nil:
		return "max_hold"
	case d.Lost != nil:
		return "lost"
	}
	return "released"
}

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

// decision returns the result of a decision of a rate limiter.
func decision(d fencelock.TraceRate) string {
	switch {
	case d.Granted > 0:
		return "granted"
	case d.Err != nil:
		return "failed"
	}
	return "limited"
}
