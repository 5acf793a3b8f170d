// Package fencepgx is the guard of package fence for transactions of PostgreSQL with pgx. It uses
// the same table as package fencepostgres, so both can guard one resource.
package fencepgx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Check guards the writes of tx to a resource. Call it before the writes. If the token of ctx is
// stale, it returns a *[fence.StaleError]; then roll back. Everything else is as for
// fencepostgres.Check. The table is that of fencepostgres.Schema.
//
// A transaction that was begun inside another one is a savepoint. If it is rolled back, its check
// is undone: call Check in the outermost transaction.
func Check(ctx context.Context, tx pgx.Tx, resource string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	if !sqlfloor.PostgresName(resource) {
		return fmt.Errorf("%w: %.40q has %d bytes; it must be UTF-8 without NUL, of %d bytes at most", fence.ErrResource, resource, len(resource), sqlfloor.PostgresMaxName)
	}
	tag, err := tx.Exec(ctx, sqlfloor.PostgresRaise, resource, f.Token, f.Floor)
	if err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	var floor int64
	if err := tx.QueryRow(ctx, sqlfloor.PostgresFloor, resource).Scan(&floor); err != nil {
		return fmt.Errorf("fence: floor of %q: %w", resource, err)
	}
	return f.Refuse(ctx, resource, floor)
}
