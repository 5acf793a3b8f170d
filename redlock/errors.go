package redlock

import (
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// unavailable wraps err in driver.ErrUnavailable.
func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// badNodeError is the error of a server that redlock cannot use.
type badNodeError struct{ error }

func (u badNodeError) Unwrap() error { return u.error }

// notAsked is the error of a call that was not sent.
type notAsked struct{ error }

func (n notAsked) Unwrap() error { return n.error }

// unknown reports whether a call that ended with err may have run or may still run. It has not run
// if the server returned an error, or if it was not sent.
func unknown(err error) bool {
	if err == nil {
		return false
	}
	_, words := errors.AsType[redisconn.ServerError](err)
	_, unsent := errors.AsType[notAsked](err)
	return !words && !unsent
}
