// Package fencepostgres is the guard of package fence for transactions of PostgreSQL with
// database/sql. Package fencepgx is the same for pgx, with the same table.
package fencepostgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Schema returns the statement that creates the table of [Check], fence_floor, if it does not
// exist. The table has one row per resource. Roles that use the guard need SELECT, INSERT and
// UPDATE on it.
func Schema() string { return sqlfloor.PostgresSchema }

// Check guards the writes of tx to a resource. Call it before the writes, so that transactions do
// not deadlock. If the token of ctx is stale, it returns a *[fence.StaleError]; then roll back.
// Otherwise other callers of Check for the resource wait until tx has ended, so that no write comes
// in between.
//
// Check is correct in every isolation level. In REPEATABLE READ and SERIALIZABLE the server may
// report a serialization failure (40001) instead of a stale token. Check returns it unchanged; a
// retry of the transaction then gets the stale token.
//
// Rolling back to a savepoint from before the check undoes the check: later writes of tx are not
// guarded. A process that is paused in tx blocks the others: set
// idle_in_transaction_session_timeout on the server.
//
// The driver must support PostgreSQL's parameters ($1) and wrap the server's errors, as
// pgx/v5/stdlib does.
func Check(ctx context.Context, tx *sql.Tx, resource string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	return check(ctx, f, tx, resource)
}

// querier is the common part of *sql.DB and *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// check checks and raises a floor in one statement.
func check(ctx context.Context, f fence.Fence, db querier, resource string) error {
	if !sqlfloor.PostgresName(resource) {
		return fmt.Errorf("%w: %.40q has %d bytes; it must be UTF-8 without NUL, of %d bytes at most", fence.ErrResource, resource, len(resource), sqlfloor.PostgresMaxName)
	}
	result, err := db.ExecContext(ctx, sqlfloor.PostgresRaise, resource, f.Token, f.Floor)
	if err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	if rows > 0 {
		return nil
	}
	var floor int64
	if err := db.QueryRowContext(ctx, sqlfloor.PostgresFloor, resource).Scan(&floor); err != nil {
		return fmt.Errorf("fence: floor of %q: %w", resource, err)
	}
	return f.Refuse(ctx, resource, floor)
}

// Store is a [fence.Store] in the table of [Schema]. It shares its floors with [Check].
type Store struct{ DB *sql.DB }

// Check checks and raises a floor in one statement that commits by itself, so a paused process does
// not block others. If connections use a stricter isolation level than READ COMMITTED, concurrent
// checks of one resource may get a serialization failure (40001).
func (s Store) Check(ctx context.Context, resource string, f fence.Fence) error {
	if _, err := fence.From(fence.NewContext(ctx, f)); err != nil { // f has no token
		return err
	}
	return check(ctx, f, s.DB, resource)
}
