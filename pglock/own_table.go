package pglock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// ownTable is a table that not every schema has, which the first use makes, and the
// connection by which it is used, which carries no leases.
type ownTable struct {
	session lazySession
	there   atomic.Bool // the table is
}

func newOwnTable(e *Engine, name string) *ownTable {
	t := &ownTable{}
	t.session.dial = func(ctx context.Context) (*session, error) {
		if err := e.makeTable(ctx, name, &t.there); err != nil {
			return nil, err
		}
		return e.dial(ctx, 0, false)
	}
	return t
}

// makeTable makes a table if it is not there, as in a schema that an earlier
// version made and still uses. A role that may not create it goes on with locks.
func (e *Engine) makeTable(ctx context.Context, name string, there *atomic.Bool) error {
	if there.Load() {
		return nil
	}
	c, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	found, err := one(c.ExecParams(ctx, "SELECT to_regclass($1::text) IS NOT NULL", [][]byte{[]byte(name)}, nil, nil, nil).Read())
	if err == nil && found.Text(0) != "t" {
		err = create(ctx, c)
	}
	there.Store(err == nil)
	return err
}

// tableLimit bounds a call of a caller who has more time.
const tableLimit = 30 * time.Second

// insist asks until there is an answer, or an error that does not pass, or the time is up.
func (t *ownTable) insist(ctx context.Context, ask func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tableLimit)
	defer cancel()
	var last error
	for pause := retry.NewBackoff(10*time.Millisecond, time.Second); ; pause.Wait(ctx) {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil || !passing(err) {
			return failure(last)
		}
	}
}
