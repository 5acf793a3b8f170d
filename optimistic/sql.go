package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Retry calls fn until it returns anything other than a fencelock.ErrConflict, and returns that. If
// ctx ends first, Retry returns the last error joined with that of ctx. Between two calls it pauses
// for a short random time, which doubles. fn reads a row with its version and writes it with
// [Changed]:
//
//	err := optimistic.Retry(ctx, func(ctx context.Context) error {
//		row := db.QueryRowContext(ctx, "SELECT seats, version FROM flight WHERE id = $1", id)
//		if err := row.Scan(&seats, &version); err != nil {
//			return err
//		}
//		return optimistic.Changed(db.ExecContext(ctx,
//			"UPDATE flight SET seats = $1, version = version + 1 WHERE id = $2 AND version = $3", seats-1, id, version))
//	})
func Retry(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	pause := retry.NewBackoff(firstPause, lastPause)
	for tries := 1; ; tries++ {
		err := fn(ctx)
		if !errors.Is(err, driver.ErrConflict) {
			return err
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("%w; gave up after %d attempts: %w", err, tries, ctx.Err())
		}
	}
}

// Changed returns the error of an UPDATE that depends on a version. If the UPDATE has changed no
// row, because the row was changed or deleted, the error is fencelock.ErrConflict.
func Changed(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		return driver.ErrConflict
	}
	return err
}

// Tx runs fn in a transaction and commits it. If fn fails or panics, it rolls back.
//
// If fn or the commit fails because of concurrent transactions (see [Refused]), or with a
// fencelock.ErrConflict, Tx repeats the whole transaction after a short random pause, until ctx
// ends. So fn may run several times: it must have no effects outside the transaction. It must
// return the errors of its statements, because after a deadlock MySQL has already rolled back, and
// later statements would run outside the transaction. opts may be nil. Use it with the isolation
// level sql.LevelSerializable.
func Tx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return Retry(ctx, func(ctx context.Context) error {
		err := once(ctx, db, opts, fn)
		if Refused(err) {
			err = fmt.Errorf("%w: %w", driver.ErrConflict, err)
		}
		return err
	})
}

// once makes one attempt of Tx.
func once(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// mysqlRefused matches errors of go-sql-driver/mysql: a deadlock, a lock wait timeout, and a row
// that has changed since the snapshot.
var mysqlRefused = regexp.MustCompile(`\bError (1213|1205|1020)( \(\w{5}\))?: `)

// Refused reports whether a database has refused a transaction or one of its statements because of
// concurrent transactions. It may succeed if it is rolled back and repeated as a whole.
//
// The error either has a method SQLState that returns 40001 (serialization failure) or 40P01
// (deadlock), as those of pgx and lib/pq, or it is an error 1213, 1205 or 1020 of MySQL or MariaDB,
// recognised by its text.
func Refused(err error) bool {
	if err == nil {
		return false
	}
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState() == "40001" || e.SQLState() == "40P01"
	}
	return mysqlRefused.MatchString(err.Error())
}
