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
	// The first call asks for the version of the limit, the second changes that version. So
	// a call that arrives late, after another Resize, finds a newer one and does nothing.
	limited := redisconn.WithDeadline(ctx, c.cfg.RetryTimeout)
	text, err := c.insist(ctx, limited, attemptLimit(0), c.call(resizeScript, lock, strconv.Itoa(limit)))
	if err != nil {
		return unavailable(err)
	}
	version, ok := strings.CutPrefix(text, "version ")
	if !ok {
		return malformed(text)
	}
	_, err = c.insist(ctx, limited, attemptLimit(0), c.call(resizeScript, lock, strconv.Itoa(limit), version))
	return unavailable(err)
}

// insist makes a call until the server has answered, or limited ends. A try whose connection has
// died unseen never ends by itself, so a call that may be carried out twice has a limit of its
// own for each.
func (c *client) insist(ctx, limited context.Context, each time.Duration, call redisconn.Call) (string, error) {
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := c.eval(redisconn.WithDeadline(limited, each), call)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || c.closed.Err() != nil {
			return text, why
		}
	}
}
