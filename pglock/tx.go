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

// TxOption is an option of LockTx and its variants.
type TxOption int

// The options of LockTx and its variants.
const (
	// Shared takes the lock in shared mode, which excludes exclusive holders only.
	Shared TxOption = iota + 1

	// AllowSnapshot permits REPEATABLE READ and SERIALIZABLE. At these levels the snapshot is older
	// than the lock, so the transaction does not see what the previous holder committed.
	AllowSnapshot
)

// LockTx takes the lock of name for a transaction, and waits for it until ctx ends. The lock is
// released when the transaction ends, or when it is rolled back to a savepoint older than the call.
// It cannot be released earlier.
//
// The lock has no TTL and no fencing token. Writes of the transaction need no token: they are
// committed before the lock is released, or not at all. It is the lock that pg_advisory_xact_lock
// takes on hashtextextended(name, 0), or on an integer for a name made by [Key]. It and the locks
// of an [Engine] exclude each other. LockTx needs no schema and works behind a pooler in
// transaction mode. It ignores an engine's quarantine and minimum holds, and the lease of a holder
// whose connection has ended.
//
// The deadline of ctx is passed to the server as lock_timeout. When it passes, or when the
// application's own lock_timeout or statement_timeout ends the wait earlier, the error satisfies
// errors.Is(err, driver.ErrHeld). The transaction can then continue as if LockTx had not been
// called, with its previous lock_timeout. After the deadline of ctx the error also satisfies
// errors.Is(err, context.DeadlineExceeded).
//
// If ctx is cancelled while LockTx waits, pgx closes the connection (unless it is configured
// otherwise), which ends the transaction. The same happens if the server has not answered ten
// seconds after the end of ctx. LockTx may therefore return up to ten seconds after ctx has ended.
//
// In a transaction above READ COMMITTED, LockTx returns driver.ErrInvalid; see [AllowSnapshot]. If
// two transactions wait for each other, the server reports a deadlock, [ErrDeadlock]: roll back and
// start again. After any other error the transaction accepts no more statements, as usual in
// PostgreSQL.
//
// A transaction may take a lock twice. If two transactions hold a lock as a shared one and both then
// take it as an exclusive one, they deadlock. Like tx, LockTx is not safe for concurrent use.
func LockTx(ctx context.Context, tx pgx.Tx, name string, options ...TxOption) error {
	return lockTx(ctx, pgxTx{tx}, name, options)
}

// TryLockTx is LockTx without waiting. If another transaction or session holds the lock, or is
// queued for it, TryLockTx returns a *driver.HeldError immediately and the transaction can
// continue. That error does not name the holder, because the server would have to list all of its
// locks; the error of a LockTx that timed out does.
func TryLockTx(ctx context.Context, tx pgx.Tx, name string, options ...TxOption) error {
	_, err := tryTx(ctx, pgxTx{tx}, name, options)
	return err
}

// transaction is what LockTx needs of a transaction.
type transaction interface {
	exec(ctx context.Context, sql string, args ...any) error
	// row scans the only row of a query into dest.
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

// tryTx takes the lock if it is free. Together with a *driver.HeldError it returns the lock_timeout
// of the transaction, 0 if it has none.
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
		return 0, fmt.Errorf("%w: %q was not locked: the server is a standby, whose locks do not exclude clients of the primary; connect to the primary", driver.ErrUnavailable, name)
	case got:
		return 0, nil
	case !slices.Contains(options, AllowSnapshot) && isolation != "read committed" && isolation != "read uncommitted":
		return 0, fmt.Errorf("%w: %q was not locked: at isolation level %s the snapshot is older than the lock, so the transaction would not see what the last holder committed; use read committed, or pass AllowSnapshot", driver.ErrInvalid, name, isolation)
	}
	return time.Duration(timeout) * time.Millisecond, &driver.HeldError{Name: name}
}

// txGrace is how long after the deadline the server may take to report the timeout before the
// connection is closed. It is meant for a server or network that has died; a slow one must not cost
// the transaction.
const txGrace = 10 * time.Second

// lockTx takes the lock, and waits behind a savepoint if it is not free.
func lockTx(ctx context.Context, tx transaction, name string, options []TxOption) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%q was not locked: %w", name, err)
	}
	lingering, cancel := linger(ctx)
	defer cancel()
	timeout, err := tryTx(lingering, tx, name, options)
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		return err
	}
	w := txWait{tx: tx, held: held, shared: slices.Contains(options, Shared), before: timeout}
	if err := tx.exec(lingering, savepointSQL); err != nil {
		return w.gaveUp(ctx, err, err)
	}
	patient, cancel := outlast(ctx, lingering)
	defer cancel()
	w.limit, w.ours = w.bound(ctx)
	return w.wait(ctx, patient)
}

// linger returns a context that ends txGrace after ctx. It is for the statements before the
// savepoint, which do not wait for locks: if one were cancelled, the transaction would be lost.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(txGrace, cancel) })
	return lingering, func() { stop(); cancel() }
}

// outlast returns a context that ends with lingering, or earlier when ctx is cancelled, but not at
// the deadline of ctx. pgx closes the connection when the context of a statement ends.
func outlast(ctx, lingering context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(lingering)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return patient, func() { stop(); cancel() }
}

// txWait is the wait of one transaction for a lock.
type txWait struct {
	tx     transaction
	held   *driver.HeldError
	shared bool
	before time.Duration // the transaction's lock_timeout; 0 means none
	limit  time.Duration // the lock_timeout for the wait; 0 means none
	ours   bool          // limit comes from the context
}

// bound returns the time until the deadline of ctx, or the transaction's lock_timeout if that is
// shorter. ours reports whether it is the former.
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

// The statements of a wait. The last two also restore lock_timeout once the lock is granted, in the
// same round trip; CASE ensures the order.
const (
	savepointSQL = "SAVEPOINT fencelock_wait"
	releaseSQL   = "RELEASE SAVEPOINT fencelock_wait"
	rollbackSQL  = "ROLLBACK TO SAVEPOINT fencelock_wait"
	timeoutSQL   = "SELECT set_config('lock_timeout', $1::text, true)"
	exclusiveSQL = "SELECT CASE WHEN pg_catalog.pg_advisory_xact_lock(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
	sharedSQL    = "SELECT CASE WHEN pg_catalog.pg_advisory_xact_lock_shared(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
)

// wait waits behind the savepoint, so that the transaction stays usable if the wait fails.
func (w *txWait) wait(ctx, patient context.Context) error {
	err := w.block(patient)
	if err == nil {
		// Rolling back to the savepoint would release the lock; releasing the savepoint keeps it.
		err = w.tx.exec(patient, releaseSQL)
	}
	if err == nil {
		return nil
	}
	return w.gaveUp(ctx, err, w.undo(ctx))
}

// block waits in the server and restores lock_timeout.
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

// millis formats a lock_timeout in milliseconds, rounded up and limited to the server's maximum.
func millis(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return strconv.FormatInt(min(int64(ms), math.MaxInt32), 10)
}

//go:embed tx_holder.sql
var holderTxSQL string

// undo rolls back to the savepoint, which restores lock_timeout and releases the lock if it was
// granted after all. It also looks up the holder.
func (w *txWait) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txGrace)
	defer cancel()
	err := w.tx.exec(ctx, rollbackSQL)
	if sqlState(err) == queryCanceled {
		err = w.tx.exec(ctx, rollbackSQL) // the first one was hit by the cancel of the wait
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

// gaveUp returns why the wait ended. If it could not be undone, the transaction is lost.
func (w *txWait) gaveUp(ctx context.Context, cause, undone error) error {
	state := sqlState(cause)
	switch {
	case state == deadlockDetected:
		return txError(w.held.Name, cause)
	case ctx.Err() != nil && undone != nil:
		return waitError(w.held, fmt.Errorf("%w: the connection was closed, which ended the transaction", ctx.Err()))
	case undone != nil:
		return txError(w.held.Name, cause)
	case ctx.Err() != nil:
		return waitError(w.held, ctx.Err())
	case state == lockNotAvailable && w.ours:
		return waitError(w.held, context.DeadlineExceeded) // the local timer has not fired yet
	case state == lockNotAvailable, state == queryCanceled:
		return waitError(w.held, cause)
	}
	return txError(w.held.Name, cause)
}

// waitError joins the holder in the way with the reason why the wait for it ended.
func waitError(held *driver.HeldError, cause error) error {
	return fmt.Errorf("%w: gave up waiting: %w", held, cause)
}

// sqlState returns the SQLSTATE of an error, "" if it has none. The errors of the common PostgreSQL
// drivers have this method.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// txError adds to an error of the server what it means for the transaction.
func txError(name string, err error) error {
	switch sqlState(err) {
	case failedTransaction:
		return fmt.Errorf("%q was not locked: the transaction had already failed; roll it back and start again: %w", name, err)
	case deadlockDetected:
		return fmt.Errorf("%q was not locked: %w; roll the transaction back and start again: %w", name, ErrDeadlock, err)
	}
	return fmt.Errorf("%q was not locked: %w", name, explain(err))
}
