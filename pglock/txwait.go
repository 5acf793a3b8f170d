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

	"github.com/fencelock/fencelock/driver"
)

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
	exclusiveSQL = "SELECT CASE WHEN pg_advisory_xact_lock(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
	sharedSQL    = "SELECT CASE WHEN pg_advisory_xact_lock_shared(" + keySQL + ")::text = '' THEN set_config('lock_timeout', $3::text, true) END"
)

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
	text, id := keyArgs(w.held.Name)
	return w.tx.exec(patient, sql, text, id, millis(w.before))
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
	text, id := keyArgs(w.held.Name)
	if err := w.tx.row(ctx, holderTxSQL, []any{text, id}, []any{&w.held.PID, &w.held.Note}); err != nil {
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
