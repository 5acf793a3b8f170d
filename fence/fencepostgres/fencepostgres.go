// Package fencepostgres is the guard of package fence for transactions of PostgreSQL, with
// database/sql. Package fencepgx is the same for pgx, with the same table.
package fencepostgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Schema is the statement that creates the table of [Check], fence_floor, if it is not
// there: one row for each resource. A role that uses the guard needs SELECT, INSERT and
// UPDATE on it.
func Schema() string { return sqlfloor.PostgresSchema }

// Check guards what tx writes to a resource. Call it before the writes,
// so that transactions do not wait for one another in a circle. It returns a *[fence.StaleError]
// if the token of ctx is stale, and the caller rolls back. Otherwise whoever else calls
// it for the resource waits until tx has ended, so that no write comes between.
//
// It is right in every isolation level. In REPEATABLE READ and SERIALIZABLE the server
// may report a serialization failure (40001) in place of a stale token; it is returned
// as it is, and the next try tells.
//
// Rolling back to a savepoint that is older than the check undoes the check: what tx writes
// afterwards is not guarded. A process that is stopped in tx keeps the others waiting: set
// the server's idle_in_transaction_session_timeout.
//
// The database driver must take PostgreSQL's parameters ($1) and wrap the server's
// errors, as pgx/v5/stdlib does.
func Check(ctx context.Context, tx *sql.Tx, resource string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	return check(ctx, f, tx, resource)
}

// querier is what a *sql.DB and a *sql.Tx have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// check compares and raises a floor in one statement.
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

// Check compares and raises a floor, in one statement that commits by itself: a process that
// is stopped keeps nobody waiting. Where connections are stricter than READ COMMITTED, of
// several that check one resource at once some get a serialization failure (40001).
func (s Store) Check(ctx context.Context, resource string, f fence.Fence) error {
	if _, err := fence.From(fence.NewContext(ctx, f)); err != nil { // a fence without a token
		return err
	}
	return check(ctx, f, s.DB, resource)
}
