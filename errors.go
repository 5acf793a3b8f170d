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
	// ErrHeld: another acquisition holds the name or is earlier in the queue. The error is a
	// *HeldError. After a wait it is joined with the context's error.
	ErrHeld = driver.ErrHeld
	// ErrLost: the lock ended before it was released. The error is a *LostError.
	ErrLost = driver.ErrLost
	// ErrMaxHold: the lock was held for Options.MaxHold. It is not ErrLost. The error is a
	// *MaxHoldError.
	ErrMaxHold = errors.New("the maximum hold is over")
	// ErrNotHeld: the acquisition has ended: it was released, has expired or was broken.
	ErrNotHeld = driver.ErrNotHeld
	// ErrUnavailable: the engine was unreachable or did not answer. It wraps the engine's error.
	ErrUnavailable = driver.ErrUnavailable
	// ErrConfig: the engine refuses to work with its current configuration, such as a missing
	// privilege or a rejected login. Retrying does not help.
	ErrConfig = driver.ErrConfig
	// ErrInvalid: the arguments or options are invalid. Retrying does not help.
	ErrInvalid = driver.ErrInvalid
	// ErrUnsupported: the engine does not have this feature.
	ErrUnsupported = driver.ErrUnsupported
)

// final reports whether a retry is useless.
func final(err error) bool {
	return errors.Is(err, ErrConfig) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported)
}

// errShortAnswer means that an engine violated its contract.
var errShortAnswer = errors.New("the engine returned fewer answers than leases")

// HeldError describes the acquisition that holds a name. It is an alias; its fields are
//
//	Name  string
//	Owner string    // as Holder.Owner
//	Host  string    // the host of the holding process
//	PID   int       // its process ID
//	Note  string    // the note of the lock; see Options.Note
//	Trace string    // the traceparent of its acquisition; see WithTrace
//	Kind  string    // as Options.Kind, such as KindElection
//	MaxHold time.Duration // what the holder published; see Options.MaxHold
//	Since time.Time // when the holder acquired
//	Until time.Time // when the lease or the minimum hold ends unless renewed
//
// Fields that the engine does not know are zero.
type HeldError = driver.HeldError

// LostError says which acquisition was lost and why. errors.Is(err, ErrLost) is true for it. It does
// not wrap its reason: a loss because of an unreachable server is not ErrUnavailable, after which a
// program may retry.
type LostError struct {
	Name     string
	Token    int64
	Deadline time.Time // when the lease would have expired; zero without a lease
	Reason   error     // the engine's error, or that the deadline has passed
}

// Error returns the name, the token and the reason in one line.
func (e *LostError) Error() string {
	reason := strings.TrimPrefix(fmt.Sprint(driver.OneLine(e.Reason)), ErrLost.Error()+": ") // not twice
	return fmt.Sprintf("lock %q with token %d was lost: %s", e.Name, e.Token, reason)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// MaxHoldError says which acquisition was held for its maximum. errors.Is(err, ErrMaxHold) is true
// for it.
type MaxHoldError struct {
	Name  string
	Token int64
	Max   time.Duration // Options.MaxHold, or the last SetMaxHold
}

// Error returns the name, the token and the maximum.
func (e *MaxHoldError) Error() string {
	return fmt.Sprintf("lock %q with token %d was held for its maximum of %v", e.Name, e.Token, e.Max)
}

// Is makes errors.Is(err, ErrMaxHold) true.
func (e *MaxHoldError) Is(target error) bool { return target == ErrMaxHold }
