package pglock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/jackc/pgx/v5/pgconn"
)

// ownTable is a table that not every schema has, which the first use makes, and the
// connection by which it is used, which carries no leases.
type ownTable struct {
	session lazySession
	there   atomic.Bool // the table is
}

// newOwnTable returns the table of a name, which nobody has looked for yet.
func newOwnTable(d *dialer, name string) *ownTable {
	t := &ownTable{}
	t.session.dial = func(ctx context.Context) (*session, error) {
		if err := t.ensure(ctx, d, name); err != nil {
			return nil, err
		}
		return d.dial(ctx, 0, false)
	}
	return t
}

// ensure makes the table if it is not there, as in a schema that an earlier
// version made and still uses. A role that may not create it goes on with locks.
func (t *ownTable) ensure(ctx context.Context, d *dialer, name string) error {
	if t.there.Load() {
		return nil
	}
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	found, err := one(c.ExecParams(ctx, "SELECT to_regclass($1::text) IS NOT NULL", [][]byte{[]byte(name)}, nil, nil, nil).Read())
	if err == nil && found.Text(0) != "t" {
		err = create(ctx, c)
	}
	t.there.Store(err == nil)
	return err
}

// tableLimit bounds a call of a caller who has more time.
const tableLimit = 30 * time.Second

// insist asks until there is an answer, or an error that does not pass, or the time is up.
func (t *ownTable) insist(ctx context.Context, ask func(context.Context, *session) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tableLimit)
	defer cancel()
	var last error
	for pause := retry.NewBackoff(10*time.Millisecond, time.Second); ; pause.Wait(ctx) {
		err := t.once(ctx, ask)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil || !passing(err) && !missing(err) {
			return failure(last)
		}
	}
}

// once asks once. If the table is gone, with its schema or without, the next one makes it anew.
func (t *ownTable) once(ctx context.Context, ask func(context.Context, *session) error) error {
	s, err := t.session.get(ctx)
	if err != nil {
		return err
	}
	err = ask(ctx, s)
	if missing(err) {
		t.there.Store(false)
		s.Kill(err)
	}
	return err
}

// missing reports whether the server knows no such function, table or schema.
func missing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"42883", "42P01", "3F000"}, pg.Code)
}
