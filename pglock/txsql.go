package pglock

import (
	"context"
	"database/sql"
)

// LockSQLTx is [LockTx] for database/sql. The driver must support PostgreSQL's parameters ($1 and
// so on), like pgx/v5/stdlib. Cancelling ctx during the wait ends the transaction here too.
func LockSQLTx(ctx context.Context, tx *sql.Tx, name string, options ...TxOption) error {
	return lockTx(ctx, sqlTx{tx}, name, options)
}

// TryLockSQLTx is [TryLockTx] for database/sql.
func TryLockSQLTx(ctx context.Context, tx *sql.Tx, name string, options ...TxOption) error {
	_, err := tryTx(ctx, sqlTx{tx}, name, options)
	return err
}

// sqlTx is a transaction of database/sql.
type sqlTx struct{ *sql.Tx }

func (t sqlTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.ExecContext(ctx, sql, args...)
	return err
}

func (t sqlTx) row(ctx context.Context, sql string, args, dest []any) error {
	return t.QueryRowContext(ctx, sql, args...).Scan(dest...)
}
