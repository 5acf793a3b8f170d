// Package optimisticpgx is package optimistic for transactions with pgx.
package optimisticpgx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/optimistic"
)

// Changed returns the error of an UPDATE that depends on a version. If the UPDATE has changed no
// row, the error is fencelock.ErrConflict; see [optimistic.Changed].
func Changed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return driver.ErrConflict
	}
	return err
}

// Tx runs fn in a transaction of db, a *pgxpool.Pool or a *pgx.Conn, and commits it. It repeats the
// transaction if the database refuses it because of concurrent ones; see [optimistic.Tx]. Use it
// with the isolation level pgx.Serializable.
func Tx(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return optimistic.Retry(ctx, func(ctx context.Context) error {
		err := pgx.BeginTxFunc(ctx, db, opts, func(tx pgx.Tx) error { return fn(ctx, tx) })
		if optimistic.Refused(err) {
			err = fmt.Errorf("%w: %w", driver.ErrConflict, err)
		}
		return err
	})
}
