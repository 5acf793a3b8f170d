package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// Resize sets the limit of a shared name.
func (c *client) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	lock, err := c.lockKey(name)
	if err != nil {
		return err
	}
	// The first call reads the version of the limit and the second one changes that version. So a
	// call that arrives after another Resize finds a newer version and has no effect.
	limited := redisconn.WithDeadline(ctx, c.cfg.RetryTimeout)
	text, err := c.retryUnavailable(ctx, limited, attemptLimit(0), c.call(resizeScript, lock, strconv.Itoa(limit)))
	if err != nil {
		return unavailable(err)
	}
	version, ok := strings.CutPrefix(text, "version ")
	if !ok {
		return malformed(text)
	}
	text, err = c.retryUnavailable(ctx, limited, attemptLimit(0), c.call(resizeScript, lock, strconv.Itoa(limit), version))
	_, failure, _ := strings.Cut(text, " ")
	c.unpublished(lock, failure)
	return unavailable(err)
}

// retryUnavailable repeats a call until the server answers or limited ends. Each attempt has its own time
// limit, because an attempt on a dead connection may never return. Calls that must not run twice
// pass a limit as long as limited.
func (c *client) retryUnavailable(ctx, limited context.Context, each time.Duration, call redisconn.Call) (string, error) {
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := c.eval(redisconn.WithDeadline(limited, each), call)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || c.closed.Err() != nil {
			return text, why
		}
	}
}
