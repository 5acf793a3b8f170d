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

// unavailable wraps the words of a server or a client; nil stays nil. What is
// wrong with the setup is ErrConfig.
func unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		return err
	}
	if e, ok := errors.AsType[redisconn.ServerError](err); ok && e.Denied() {
		return fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// passing reports whether another try may succeed: the server did not answer, or
// it says that it is starting, failing over or moving keys, has no room for
// another client, or has not been told a script yet.
func passing(err error) bool {
	e, ok := errors.AsType[redisconn.ServerError](err)
	if !ok {
		return !errors.Is(err, driver.ErrConfig)
	}
	switch e.Code() {
	case "LOADING", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED", "NOSCRIPT":
		return true
	}
	return slices.ContainsFunc(passingTexts, func(text string) bool { return strings.Contains(e.Text, text) })
}

// passingTexts are errors without a code of their own that pass. The last two refuse a script
// that uses a key of a slot that is moving to another node.
var passingTexts = []string{"max number of clients", "non local key", "during rehashing of the slot"}

// cause returns why tries have failed: err, or what was known before if err says
// no more than that the time was up.
func cause(before, err error) error {
	if before != nil && redisconn.IsContextError(err) {
		return before
	}
	return err
}

// attemptLimit bounds one call for a lock of this TTL: short enough to try again
// within it, long enough for a busy network.
func attemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 500*time.Millisecond), 2*time.Second)
}

// newBackoff spaces out attempts at a server that does not answer.
func newBackoff() *retry.Backoff { return retry.NewBackoff(10*time.Millisecond, time.Second) }
