package pglock

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
)

// TxOption changes how a transaction-level lock is taken.
type TxOption int

// The options of LockTx and its siblings.
const (
	// Shared lets other shared holders in, and keeps exclusive ones out.
	Shared TxOption = iota + 1

	// AllowSnapshot permits REPEATABLE READ and SERIALIZABLE. There the snapshot
	// is older than the lock: the transaction does not see what the holder before
	// it has committed.
	AllowSnapshot
)

// LockTx takes the lock of name for a transaction and waits for it as long as ctx
// allows. The lock is free again when the transaction ends, or when it is rolled
// back to a savepoint older than the call; there is no way to release it earlier.
// It has no TTL, and no fencing token: what the transaction writes is safe without
// one, since it is committed before the lock is free or not at all, and a number to
// take elsewhere would have to come from a table that the role may not have. It is
// the lock that pg_advisory_xact_lock takes on hashtextextended(name, 0), or on an
// integer for a name made by [Key], and it and the locks of an [Engine] exclude each
// other. It needs no schema, works behind a pooler in transaction mode, and knows
// nothing of an engine's quarantines and minimum holds.
//
// A deadline of ctx is given to the server as lock_timeout. When it passes, or when
// a lock_timeout or statement_timeout of the application ends the wait earlier, the
// error satisfies errors.Is(err, driver.ErrHeld) and the transaction can go on as if
// LockTx had not been called; lock_timeout is what it was in any case. The error of
// a deadline also satisfies errors.Is(err, context.DeadlineExceeded). A ctx that is
// cancelled while LockTx waits is different: pgx closes the connection, unless it
// is configured otherwise, and the transaction ends with it. So it does when the
// server has not answered ten seconds after the deadline, which is how much longer
// than ctx says LockTx may take.
//
// A transaction above READ COMMITTED is refused with driver.ErrInvalid, see
// [AllowSnapshot]. Two transactions that wait for each other get a deadlock from the
// server, [ErrDeadlock]: roll back and begin again. After any other error than
// these the transaction takes no more statements, as usual in PostgreSQL.
//
// A transaction may take a lock twice. It must not take one shared and then
// exclusive while others may do the same: that is a deadlock. LockTx is no safer for
// concurrent use than tx.
func LockTx(ctx context.Context, tx pgx.Tx, name string, options ...TxOption) error {
	return lockTx(ctx, pgxTx{tx}, name, options)
}

// TryLockTx is LockTx without a wait: if somebody holds the lock, or waits for it in
// front of us, it returns a *driver.HeldError at once and the transaction can go on. Only the
// error of a LockTx whose time is over says who holds it: to find that out, the server lists all
// locks that it has.
func TryLockTx(ctx context.Context, tx pgx.Tx, name string, options ...TxOption) error {
	_, err := tryTx(ctx, pgxTx{tx}, name, options)
	return err
}

// A transaction is what a lock needs of one.
type transaction interface {
	exec(ctx context.Context, sql string, args ...any) error
	// row scans the one row of a query into dest.
	row(ctx context.Context, sql string, args, dest []any) error
}

// pgxTx is a transaction of pgx.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.Exec(ctx, sql, args...)
	return err
}

func (t pgxTx) row(ctx context.Context, sql string, args, dest []any) error {
	return t.QueryRow(ctx, sql, args...).Scan(dest...)
}

//go:embed tx_try.sql
var tryTxSQL string

// tryTx takes the lock if it is free. With a *driver.HeldError it returns the
// lock_timeout of the transaction, 0 if it has none.
func tryTx(ctx context.Context, tx transaction, name string, options []TxOption) (time.Duration, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	var (
		got, standby bool
		isolation    string
		timeout      int64
	)
	text, id := keyArgs(name)
	args := []any{text, id, slices.Contains(options, Shared), slices.Contains(options, AllowSnapshot)}
	err := tx.row(ctx, tryTxSQL, args, []any{&got, &isolation, &standby, &timeout})
	switch {
	case err != nil:
		return 0, txError(name, err)
	case standby:
		return 0, fmt.Errorf("%w: %q was not locked: this server is a standby, whose locks the primary does not know; connect to the primary", driver.ErrUnavailable, name)
	case got:
		return 0, nil
	case !slices.Contains(options, AllowSnapshot) && isolation != "read committed" && isolation != "read uncommitted":
		return 0, fmt.Errorf("%w: %q was not locked: at %s the snapshot is older than the lock, so the transaction would not see what the last holder committed; begin it at read committed, or pass AllowSnapshot", driver.ErrInvalid, name, isolation)
	}
	return time.Duration(timeout) * time.Millisecond, &driver.HeldError{Name: name}
}
