package memlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Resize sets the limit of a shared name for everybody; see [driver.Resizer].
// The store remembers it for ever.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	return e.call(ctx, func(now time.Time) error {
		e.store.limits[name] = limit
		l := e.store.lock(name, now)
		l.limit = limit
		e.store.settle(l, now)
		return nil
	})
}
