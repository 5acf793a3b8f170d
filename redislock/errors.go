package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/retry"
)

// unavailable wraps an error of a server or a client in ErrUnavailable, or in ErrConfig if the
// setup must be corrected. nil stays nil.
func unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	if e, ok := errors.AsType[redisconn.ServerError](err); ok && e.Denied() {
		return fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// passing reports whether a retry may succeed: the server did not answer, or it reports that it is
// starting, failing over or moving keys, has no free connection, or has not loaded the script yet.
func passing(err error) bool {
	e, ok := errors.AsType[redisconn.ServerError](err)
	if !ok {
		return !errors.Is(err, driver.ErrConfig)
	}
	switch e.Code() {
	case "LOADING", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED", "NOSCRIPT", "MISCONF":
		return true
	}
	return slices.ContainsFunc(passingTexts, func(text string) bool { return strings.Contains(e.Text, text) })
}

// passingTexts are errors without a code of their own that pass. The last two refuse a script
// that uses a key of a slot that is moving to another node.
var passingTexts = []string{"max number of clients", "non local key", "during rehashing of the slot"}

// cause returns why attempts have failed: err, or the error known before if err says only that the
// time is up.
func cause(before, err error) error {
	if before != nil && redisconn.IsContextError(err) {
		return before
	}
	return err
}

// attemptLimit returns the time limit of one call for a lock with this TTL: short enough for
// another attempt within the TTL, long enough for a busy network.
func attemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 500*time.Millisecond), 2*time.Second)
}

// newBackoff returns the pauses between attempts while the server does not answer.
func newBackoff() *retry.Backoff { return retry.NewBackoff(10*time.Millisecond, time.Second) }
