package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Schema is the statement that creates the table of [CheckTx], fence_floor, if it is not
// there: one row for each resource. A role that uses the guard needs SELECT, INSERT and
// UPDATE on it.
func Schema() string { return sqlfloor.PostgresSchema }

// CheckTx guards what tx writes to a resource, on PostgreSQL. Call it before the writes,
// so that transactions do not wait for one another in a circle. It returns a *[StaleError]
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
func CheckTx(ctx context.Context, tx *sql.Tx, resource string) error {
	f, err := From(ctx)
	if err != nil {
		return err
	}
	return f.check(ctx, tx, resource)
}

// querier is what a *sql.DB and a *sql.Tx have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// check compares and raises a floor in one statement.
func (f Fence) check(ctx context.Context, db querier, resource string) error {
	if !sqlfloor.PostgresName(resource) {
		return fmt.Errorf("%w: %.40q has %d bytes; it must be UTF-8 without NUL, of %d bytes at most", ErrResource, resource, len(resource), sqlfloor.PostgresMaxName)
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

// Wrote is for a floor that stands in a column of your own table: it turns the number
// of rows that a guarded UPDATE has changed into a *[StaleError], of unknown floor, if
// it is 0. The row must exist; see docs/guards.md. Make the UPDATE in a transaction or on a
// sql.Conn: a sql.DB itself may make it twice, if the answer to the first was lost.
//
//	f, err := fence.From(ctx)
//	...
//	r, err := tx.ExecContext(ctx, `UPDATE invoice SET paid = true, fence = greatest(fence, $1)
//		WHERE id = 42 AND fence <= $2`, f.Floor, f.Token)
//	...
//	n, err := r.RowsAffected()
//	...
//	return fence.Wrote(ctx, "invoice:42", n)
func Wrote(ctx context.Context, resource string, rows int64) error {
	f, err := From(ctx)
	if err != nil || rows > 0 {
		return err
	}
	return f.Refuse(ctx, resource, 0)
}
