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

// Retry runs fn until it returns something else than a fencelock.ErrConflict, and
// returns that, or until ctx ends, which is then joined with the last error. It makes short
// random pauses, which double, in between. fn reads a row with its version, and writes it with [Changed]:
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
			return fmt.Errorf("%w; gave up after %d tries: %w", err, tries, ctx.Err())
		}
	}
}

// Changed returns the error of an UPDATE on the condition of a version, and ErrConflict
// if it has changed no row: somebody else has written, or the row has gone.
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

// Tx runs fn in a transaction and commits it; if fn returns an error, or panics, it is
// rolled back. The whole transaction is made again, after a short random pause, as long as
// fn or the commit is refused for what others do at the same time ([Refused]), or is a
// fencelock.ErrConflict, until ctx ends. So fn may run several times, and must do nothing
// but what the transaction takes back, and must return the errors of its statements: MySQL
// has already rolled a transaction back that it calls a deadlock, and goes on outside of it.
// opts may be nil; the level to use it with is sql.LevelSerializable.
func Tx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return Retry(ctx, func(ctx context.Context) error {
		err := once(ctx, db, opts, fn)
		if Refused(err) {
			err = fmt.Errorf("%w: %w", driver.ErrConflict, err)
		}
		return err
	})
}

// once makes one try of Tx.
func once(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// mysqlRefused is how the errors of go-sql-driver/mysql begin that say so: a deadlock, a wait
// for a row that took too long, and a row that has changed since the snapshot.
var mysqlRefused = regexp.MustCompile(`\bError (1213|1205|1020)( \(\w{5}\))?: `)

// Refused reports whether a database has refused a transaction, or a statement of it, because
// of others at the same time, so that it may work when all of it is made again: it must be
// rolled back first. The error has an SQLSTATE of 40001, a serialization failure, or 40P01, a
// deadlock, in a method SQLState, as those of pgx and lib/pq; or it is one of MySQL or
// MariaDB, 1213, 1205 or 1020, which is known by its text.
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
