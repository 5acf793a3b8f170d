package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The errors of every engine. Test for them with errors.Is. The text around them contains the
// engine's own message.
var (
	// ErrHeld: another acquisition holds the name or is earlier in the queue.
	ErrHeld = errors.New("lock is held")
	// ErrLost: the acquisition ended before its holder released it.
	ErrLost = errors.New("lock was lost")
	// ErrBroken: the acquisition was ended by Break. It is an ErrLost, with the same text: say in
	// the error that wraps it who broke it, or why.
	ErrBroken = fmt.Errorf("%w", ErrLost)
	// ErrNotHeld: the acquisition does not exist, or has ended.
	ErrNotHeld = errors.New("lock is not held")
	// ErrUnavailable: the engine is unreachable, did not answer, or refuses requests for now.
	ErrUnavailable = errors.New("engine is unavailable")
	// ErrConfig: the engine answers but refuses to work with its current configuration: a missing
	// privilege, a rejected login, an unsuitable server. It is not retried.
	ErrConfig = errors.New("engine is not set up for this")
	// ErrInvalid: the arguments or options are invalid.
	ErrInvalid = errors.New("invalid request")
	// ErrUnsupported: this engine does not have the feature.
	ErrUnsupported = errors.New("not supported by this engine")
)

// HeldError describes the acquisition that holds a name. It satisfies errors.Is(err, ErrHeld).
// Fields that the engine does not know are zero.
type HeldError struct {
	Name  string
	Owner string
	Identity
	Since time.Time // when the holder acquired
	Until time.Time // when the lease or the minimum hold ends unless renewed
}

// nobody is the Owner that engines report for a minimum hold whose holder has ended.
const nobody = "nobody"

// Error says who holds the name, since when and until when.
func (e *HeldError) Error() string {
	var b strings.Builder
	if e.PID == 0 && e.Owner == nobody {
		fmt.Fprintf(&b, "%q is closed by a minimum hold", e.Name)
		if !e.Until.IsZero() {
			fmt.Fprintf(&b, " until %s", e.Until.Format(time.RFC3339))
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%q is held", e.Name)
	if e.PID != 0 {
		fmt.Fprintf(&b, " by pid %d on %s", e.PID, e.Host)
	} else if e.Owner != "" {
		fmt.Fprintf(&b, " by %s", e.Owner)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, " (%s)", e.Note)
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.Format(time.RFC3339))
	}
	if !e.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", e.Until.Format(time.RFC3339))
		if e.PID != 0 || e.Owner != "" { // only a holder renews
			b.WriteString(" unless renewed")
		}
	}
	return b.String()
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// waitError joins the holder that a request waited for with the reason why the wait ended.
type waitError struct {
	last  error // the last answer or failure of the engine
	cause error // why the wait ended
}

func (e *waitError) Error() string   { return fmt.Sprintf("%v: gave up waiting: %v", e.last, e.cause) }
func (e *waitError) Unwrap() []error { return []error{e.last, e.cause} }

// maxName is the maximum length of a name in bytes.
const maxName = 512

// CheckName returns an ErrInvalid that says what is wrong with a name, or nil.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	case len(name) > maxName:
		return fmt.Errorf("%w: the name has %d bytes, more than %d", ErrInvalid, len(name), maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: the name contains a NUL byte", ErrInvalid)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name is not valid UTF-8", ErrInvalid)
	}
	return nil
}

// MinTTL is the minimum TTL of an engine whose Traits.MinTTL is zero.
const MinTTL = 100 * time.Millisecond

// MaxDuration is the maximum TTL and minimum hold of every engine: ten years. It ensures that a sum
// of a few such durations and a date cannot overflow, here or in the arithmetic of an engine.
const MaxDuration = 10 * 365 * 24 * time.Hour

// MaxLimit is the maximum limit and weight of every engine. It ensures that a sum of weights
// neither overflows nor loses digits, here or in the arithmetic of an engine.
const MaxLimit = 1_000_000_000

// Check returns an ErrInvalid or ErrUnsupported that says what is wrong with the request for an
// engine with the traits t, or nil. Engines call it before any I/O. The maximum of TTL and MinHold
// is MaxDuration; that of Limit and Weight is MaxLimit.
func (r Request) Check(t Traits) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	shortest := t.MinTTL
	if shortest == 0 {
		shortest = MinTTL
	}
	switch {
	case r.TTL < shortest:
		return fmt.Errorf("%w: the TTL %v is shorter than the minimum %v", ErrInvalid, r.TTL, shortest)
	case t.MaxTTL > 0 && r.TTL > t.MaxTTL:
		return fmt.Errorf("%w: the TTL %v is longer than the maximum %v", ErrInvalid, r.TTL, t.MaxTTL)
	case r.TTL > MaxDuration || r.MinHold > MaxDuration:
		return fmt.Errorf("%w: the TTL %v or the minimum hold %v is longer than ten years", ErrInvalid, r.TTL, r.MinHold)
	case r.MinHold < 0:
		return fmt.Errorf("%w: the minimum hold %v is negative", ErrInvalid, r.MinHold)
	case r.MinHold > 0 && r.Mode == Shared:
		return fmt.Errorf("%w: a minimum hold needs an exclusive lock, and this request is for a shared one", ErrInvalid)
	case r.MinHold > 0 && t.MaxMinHold < 0:
		return fmt.Errorf("%w: the server of %s may evict keys, so it grants no minimum hold; use a server with maxmemory-policy noeviction, and do not set AllowEviction", ErrInvalid, t.Engine)
	case t.MaxMinHold > 0 && r.MinHold > t.MaxMinHold:
		return fmt.Errorf("%w: the minimum hold %v is longer than %v, the longest that %s guarantees; set MaxTTL (max-ttl) to at least the minimum hold", ErrInvalid, r.MinHold, t.MaxMinHold, t.Engine)
	case r.Limit < 0:
		return fmt.Errorf("%w: the limit %d is negative", ErrInvalid, r.Limit)
	case r.Limit > MaxLimit:
		return fmt.Errorf("%w: the limit %d is more than %d", ErrInvalid, r.Limit, MaxLimit)
	case r.Limit > 0 && r.Mode != Shared:
		return fmt.Errorf("%w: a limit needs a shared lock", ErrInvalid)
	case r.Limit > 0 && !t.Limits:
		return fmt.Errorf("%w: %s does not support limits", ErrUnsupported, t.Engine)
	case r.Weight < 0:
		return fmt.Errorf("%w: the weight %d is negative", ErrInvalid, r.Weight)
	case r.Weight > 0 && r.Limit == 0:
		return fmt.Errorf("%w: a weight needs a limit", ErrInvalid)
	case r.Weight > r.Limit:
		return fmt.Errorf("%w: the weight %d is more than the limit %d", ErrInvalid, r.Weight, r.Limit)
	}
	return nil
}

// CheckAdopt is Check for a request that adopts lease. Engines call it before any I/O.
func (r Request) CheckAdopt(t Traits, lease Lease) error {
	switch {
	case lease.Name != r.Name:
		return fmt.Errorf("%w: a lease of %q cannot be adopted as %q", ErrInvalid, lease.Name, r.Name)
	case lease.Owner == "" || strings.ContainsAny(lease.Owner, " \x00\r\n") || lease.Token <= 0:
		return fmt.Errorf("%w: the lease of %q has no valid owner and token; pass on what Lock.Lease returned", ErrInvalid, lease.Name)
	case lease.Mode != r.Mode:
		return fmt.Errorf("%w: %q was acquired in another mode than it is adopted in, which is %s; set Shared as for the acquisition", ErrInvalid, lease.Name, r.Mode)
	case r.MinHold > 0:
		return fmt.Errorf("%w: an adopted lock keeps the minimum hold with which it was acquired; set none to adopt it", ErrInvalid)
	}
	return r.Check(t)
}

// Units returns how many units of its limit the request takes: its weight, or 1.
func (r Request) Units() int { return max(1, r.Weight) }

// CheckResize returns an ErrInvalid that says what is wrong with a new limit for name, or nil.
// Engines call it before any I/O.
func CheckResize(name string, limit int) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if limit < 1 {
		return fmt.Errorf("%w: the new limit %d is below 1", ErrInvalid, limit)
	}
	if limit > MaxLimit {
		return fmt.Errorf("%w: the new limit %d is more than %d", ErrInvalid, limit, MaxLimit)
	}
	return nil
}
