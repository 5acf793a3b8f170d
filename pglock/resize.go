package pglock

import (
	"context"
	"fmt"
	"math"

	"github.com/fencelock/fencelock/driver"
)

var stmtResize = &statement{"resize", `SELECT fencelock.resize($1::bigint, $2::text, $3::integer)`}

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. It
// is on disk when Resize returns, and lasts as long as the schema.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	if err := checkLimit(limit); err != nil {
		return err
	}
	if _, err := e.ask(ctx, stmtResize, keyOf(name), name, limit); err != nil {
		return unavailable(err)
	}
	return nil
}

// checkLimit refuses a limit that the server's columns have no room for.
func checkLimit(limit int) error {
	if limit > math.MaxInt32 {
		return fmt.Errorf("%w: the limit %d is more than %d", driver.ErrInvalid, limit, math.MaxInt32)
	}
	return nil
}
