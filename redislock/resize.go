package redislock

import (
	"context"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

var _ driver.Resizer = (*Engine)(nil)

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. The
// server remembers it next to the name's last token, for Config.Retention after
// the last acquire. A try that arrives late, after another Resize, has no effect.
// Passing errors are tried again, for no longer than RetryTimeout;
// after an error the limit may have changed or may still change.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	ks, err := e.keysOf(name)
	if err != nil {
		return err
	}
	limited := withDeadline(ctx, e.cfg.RetryTimeout)
	text, err := e.insist(ctx, limited, e.call(resizeScript, ks, strconv.Itoa(limit)))
	if err != nil {
		return unavailable(err)
	}
	version, ok := strings.CutPrefix(text, "version ")
	if !ok {
		return malformed(text)
	}
	_, err = e.insist(ctx, limited, e.call(resizeScript, ks, strconv.Itoa(limit), version))
	return unavailable(err)
}

// insist makes a call until the server has answered, or limited ends.
func (e *Engine) insist(ctx, limited context.Context, c Call) (string, error) {
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := e.eval(withDeadline(limited, attemptLimit(0)), c)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || e.closed.Err() != nil {
			return text, why
		}
	}
}
