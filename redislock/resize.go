package redislock

import (
	"context"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

var _ driver.Resizer = (*Engine)(nil)

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. The
// server remembers it next to the name's last token, for Config.Retention after
// the last acquire. Passing errors are tried again, for no longer than GiveUp;
// after an error the limit may have changed or may still change.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	ks, err := e.keysOf(name)
	if err != nil {
		return err
	}
	c := e.call(resizeScript, ks, strconv.Itoa(limit))
	limited := within(ctx, e.cfg.GiveUp)
	var why error
	for pause := newBackoff(); ; sleep(ctx, pause.NextBackOff()) {
		_, err := e.eval(within(limited, attemptLimit(0)), c)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || e.closed.Err() != nil {
			return unavailable(why)
		}
	}
}
