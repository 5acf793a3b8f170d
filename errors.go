package fencelock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// The errors of every engine. Test for them with errors.Is.
var (
	// ErrHeld: somebody else holds the name or is before us in the queue. The
	// error is a *HeldError, joined with the context's error when a wait ended.
	ErrHeld = driver.ErrHeld
	// ErrLost: the lock ended before it was released. The error is a *LostError.
	ErrLost = driver.ErrLost
	// ErrNotHeld: the lock was released, or does not stand any more.
	ErrNotHeld = driver.ErrNotHeld
	// ErrUnavailable: the engine could not be asked; it wraps the engine's words.
	ErrUnavailable = driver.ErrUnavailable
	// ErrConfig: the engine cannot be used as it is set up, such as a missing right
	// or a refused login. Trying again does not help.
	ErrConfig = driver.ErrConfig
	// ErrInvalid: the request makes no sense; nothing was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrUnsupported: this engine cannot do that.
	ErrUnsupported = driver.ErrUnsupported
)

// final reports whether trying again would not help.
func final(err error) bool {
	return errors.Is(err, ErrConfig) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported)
}

// errShortAnswer: an engine broke its contract.
var errShortAnswer = errors.New("the engine did not answer for every lease")

// HeldError says who is in the way. It is an alias; its fields are
//
//	Name  string
//	Owner string    // as Holder.Owner
//	Host  string    // the process that holds, with PID and what it says of itself, Note
//	PID   int
//	Note  string
//	Trace string    // the traceparent of its acquisition; see WithTrace
//	Since time.Time // when the holder acquired
//	Until time.Time // when the lease, or the minimum hold, ends unless renewed
//
// Those that the engine does not know are zero.
type HeldError = driver.HeldError

// LostError says which acquisition was lost and why. It satisfies
// errors.Is(err, ErrLost), and errors.Is of its reason.
type LostError struct {
	Name     string
	Token    int64
	Deadline time.Time // when the lease would have ended; zero without a lease
	Reason   error     // what the engine said, or that the deadline came
}

// Error names the lock, its token and the reason, in one line.
func (e *LostError) Error() string {
	reason := strings.TrimPrefix(fmt.Sprint(driver.OneLine(e.Reason)), ErrLost.Error()+": ") // it says so itself
	return fmt.Sprintf("lock %q with token %d was lost: %s", e.Name, e.Token, reason)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }
