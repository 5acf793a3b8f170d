package pglock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
// nothing of an engine's quarantines and minimum holds, nor of the lease of a holder whose
// connection has ended.
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
	args := []any{name, keyID(name), slices.Contains(options, Shared), slices.Contains(options, AllowSnapshot)}
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

// txGrace is how long after the deadline the server may take to say that it has
// given up. Then the connection is closed. It is for a server or a network that has
// died: one that is slow must not cost the transaction.
const txGrace = 10 * time.Second

// lockTx takes the lock, and waits behind a savepoint if it is not free.
func lockTx(ctx context.Context, tx transaction, name string, options []TxOption) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%q was not locked: %w", name, err)
	}
	patient, cancel := outlast(ctx)
	defer cancel()
	timeout, err := tryTx(patient, tx, name, options)
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		return err
	}
	w := txWait{tx: tx, held: held, shared: slices.Contains(options, Shared), before: timeout}
	w.limit, w.ours = w.bound(ctx)
	return w.wait(ctx, patient)
}

// outlast returns a context that ends when ctx is cancelled, and a grace later than
// ctx when its deadline passes: pgx closes the connection of a context that ends.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
			return
		}
		time.AfterFunc(txGrace, cancel)
	})
	return patient, func() { stop(); cancel() }
}

// A txWait waits for the lock of one transaction.
type txWait struct {
	tx     transaction
	held   *driver.HeldError
	shared bool
	before time.Duration // the lock_timeout of the transaction; 0 means none
	limit  time.Duration // the lock_timeout of the wait; 0 means none
	ours   bool          // limit comes from the context
}

// bound returns what is left until the deadline of ctx, or the lock_timeout of the
// transaction if that is shorter, and whether it is the deadline's.
func (w *txWait) bound(ctx context.Context) (limit time.Duration, ours bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return w.before, false
	}
	left := max(time.Until(deadline), time.Millisecond)
	if w.before > 0 && w.before < left {
		return w.before, false
	}
	return left, true
}

// The statements of a wait. The last one restores lock_timeout after the lock was
// granted, in the same round trip; the CASE puts the two in order.
const (
	savepointSQL = "SAVEPOINT fencelock_wait"
	releaseSQL   = "RELEASE SAVEPOINT fencelock_wait"
	rollbackSQL  = "ROLLBACK TO SAVEPOINT fencelock_wait"
	timeoutSQL   = "SELECT set_config('lock_timeout', $1::text, true)"
	exclusiveSQL = "SELECT CASE WHEN pg_catalog.pg_advisory_xact_lock(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
	sharedSQL    = "SELECT CASE WHEN pg_catalog.pg_advisory_xact_lock_shared(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
)

// wait waits behind a savepoint, which keeps the transaction usable if it gets no lock.
func (w *txWait) wait(ctx, patient context.Context) error {
	if err := w.tx.exec(patient, savepointSQL); err != nil {
		return w.gaveUp(ctx, err, err)
	}
	err := w.block(patient)
	if err == nil {
		// A rollback to the savepoint would free the lock; a release keeps it.
		err = w.tx.exec(patient, releaseSQL)
	}
	if err == nil {
		return nil
	}
	return w.gaveUp(ctx, err, w.undo(ctx))
}

// block waits in the server, and leaves lock_timeout as it was.
func (w *txWait) block(patient context.Context) error {
	if w.ours {
		if err := w.tx.exec(patient, timeoutSQL, millis(w.limit)); err != nil {
			return err
		}
	}
	sql := exclusiveSQL
	if w.shared {
		sql = sharedSQL
	}
	return w.tx.exec(patient, sql, w.held.Name, keyID(w.held.Name), millis(w.before))
}

// millis writes a lock_timeout, rounded up, in the milliseconds that fit into one.
func millis(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return strconv.FormatInt(min(int64(ms), math.MaxInt32), 10)
}

//go:embed tx_holder.sql
var holderTxSQL string

// undo brings the transaction back to the savepoint, which frees the lock, should it
// have been granted after all, and restores lock_timeout. It finds out who has the lock.
func (w *txWait) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txGrace)
	defer cancel()
	err := w.tx.exec(ctx, rollbackSQL)
	if sqlState(err) == queryCanceled {
		err = w.tx.exec(ctx, rollbackSQL) // the first one met the cancel of the wait
	}
	if err != nil {
		return err
	}
	if err := w.tx.row(ctx, holderTxSQL, []any{w.held.Name, keyID(w.held.Name)}, []any{&w.held.PID, &w.held.Note}); err != nil {
		if err := w.tx.exec(ctx, rollbackSQL); err != nil {
			return err
		}
	} else if w.held.PID != 0 {
		w.held.Host = "the PostgreSQL server"
	}
	return w.tx.exec(ctx, releaseSQL)
}

// gaveUp says why the wait ended. If it could not be undone, the transaction is
// lost.
func (w *txWait) gaveUp(ctx context.Context, cause, undone error) error {
	state := sqlState(cause)
	switch {
	case state == deadlockDetected:
		return txError(w.held.Name, cause)
	case ctx.Err() != nil && undone != nil:
		return driver.WaitError(w.held, fmt.Errorf("%w: the connection was closed, and the transaction has ended with it", ctx.Err()))
	case undone != nil:
		return txError(w.held.Name, cause)
	case ctx.Err() != nil:
		return driver.WaitError(w.held, ctx.Err())
	case state == lockNotAvailable && w.ours:
		return driver.WaitError(w.held, context.DeadlineExceeded) // our timer is late
	case state == lockNotAvailable, state == queryCanceled:
		return driver.WaitError(w.held, cause)
	}
	return txError(w.held.Name, cause)
}

// sqlState returns the SQLSTATE of an error, "" if it has none. Every PostgreSQL
// driver of note has errors with this method.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// txError says what an error of the server means for a lock in a transaction.
func txError(name string, err error) error {
	switch sqlState(err) {
	case failedTransaction:
		return fmt.Errorf("%q was not locked: the transaction has failed before; roll it back and begin again: %w", name, err)
	case deadlockDetected:
		return fmt.Errorf("%q was not locked: %w; roll the transaction back and begin again: %w", name, ErrDeadlock, err)
	}
	return fmt.Errorf("%q was not locked: %w", name, explain(err))
}
