package redlock

import (
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// unavailable says that there is no answer because of err.
func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// badNodeError is why a server is not what redlock needs.
type badNodeError struct{ error }

func (u badNodeError) Unwrap() error { return u.error }

// notAsked is the error of a request that was not sent.
type notAsked struct{ error }

func (n notAsked) Unwrap() error { return n.error }

// unknown reports whether a call that ended with err may run nevertheless. What a server
// has refused in its own words it has not run, and what was not sent it will not run.
func unknown(err error) bool {
	if err == nil {
		return false
	}
	_, words := errors.AsType[redisconn.ServerError](err)
	_, unsent := errors.AsType[notAsked](err)
	return !words && !unsent
}
