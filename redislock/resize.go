package redislock

import (
	"context"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// Resize sets the limit of a shared name.
func (c *client) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	ks, err := c.keysOf(name)
	if err != nil {
		return err
	}
	// The first call asks for the version of the limit, the second changes that version. So
	// a call that arrives late, after another Resize, finds a newer one and does nothing.
	limited := redisconn.WithDeadline(ctx, c.cfg.RetryTimeout)
	text, err := c.insist(ctx, limited, c.call(resizeScript, ks, strconv.Itoa(limit)))
	if err != nil {
		return unavailable(err)
	}
	version, ok := strings.CutPrefix(text, "version ")
	if !ok {
		return malformed(text)
	}
	_, err = c.insist(ctx, limited, c.call(resizeScript, ks, strconv.Itoa(limit), version))
	return unavailable(err)
}

// insist makes a call until the server has answered, or limited ends. Each try has its own
// limit, since one whose connection has died unseen never ends by itself: the call must
// be one that may be carried out twice.
func (c *client) insist(ctx, limited context.Context, call redisconn.Call) (string, error) {
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := c.eval(redisconn.WithDeadline(limited, attemptLimit(0)), call)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || c.closed.Err() != nil {
			return text, why
		}
	}
}
