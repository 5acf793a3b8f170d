package pglock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. It
// is on disk when Resize returns, and lasts as long as the schema.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	if err := checkLimit(limit); err != nil {
		return err
	}
	if _, err := e.ask(ctx, `SELECT fencelock.resize($1::bigint, $2::text, $3::integer)`, keyOf(name), name, limit); err != nil {
		return failure(err)
	}
	return nil
}
