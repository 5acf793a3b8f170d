// Package fencepgx is the guard of package fence for transactions of pgx. It uses the same table as
// fencepostgres, so both can guard one resource.
package fencepgx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Check guards what tx writes to a resource. Call it before the writes. It returns a
// *[fence.StaleError] if the token of ctx is stale, and the caller rolls back; the rest
// is as with fencepostgres.Check, and the table that of fencepostgres.Schema.
//
// A transaction that was begun in another one is a savepoint of it. If that is rolled back,
// so is a check that was made there: check in the outermost one.
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
