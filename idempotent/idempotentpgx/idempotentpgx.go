// Package idempotentpgx runs a job once per key inside a PostgreSQL transaction: what the job
// writes, and the record that it is done, are committed together or not at all. Effects in that
// database happen exactly once, even if processes die or are paused. No lease is needed.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		total, err := idempotentpgx.DoTx(ctx, tx, "invoice:42", nil, func(ctx context.Context, tx pgx.Tx) (int, error) {
//			return post(ctx, tx) // write only with tx
//		})
//		return err
//	})
//
// Effects outside the database may happen again if the transaction is rolled back. For those use
// package idempotent.
package idempotentpgx

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
)

//go:embed schema.sql
var schema string

// Schema returns the SQL that creates the table of DoTx, fencelock_once. The table belongs to the
// application. DoTx finds it by the search path. The application deletes old rows, by the column
// done.
func Schema() string { return schema }

const (
	claimSQL  = `INSERT INTO fencelock_once (key, payload) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING`
	resultSQL = `UPDATE fencelock_once SET result = $2 WHERE key = $1`
	keptSQL   = `SELECT payload, result FROM fencelock_once WHERE key = $1`
)

// DoTx returns the result of the job of a key. If no committed transaction has done the job, it
// runs fn and stores its result as JSON; otherwise it returns the stored result.
//
// While another transaction does the job, DoTx waits for its end, as long as ctx and the server's
// lock_timeout allow. If that transaction is rolled back, this one does the job. fn must write only
// with the tx that it gets, which is a savepoint of the caller's transaction. If fn fails, its
// error is returned and the savepoint is rolled back with the record, even if ctx has ended.
// Nothing is final until the caller commits. If fn calls DoTx with its own key, it gets
// idempotent.ErrInProgress.
//
// payload is the input of the job, or nil. If the key was used with another payload, the error is
// idempotent.ErrMismatch. At an isolation level above READ COMMITTED the server may refuse the
// transaction (40001); the caller must then repeat it, for example with package optimisticpgx.
func DoTx[T any](ctx context.Context, tx pgx.Tx, key string, payload []byte, fn func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	var value T
	if err := driver.CheckName(key); err != nil {
		return value, err
	}
	do := func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, claimSQL, key, fingerprint(payload))
		if err != nil {
			return fmt.Errorf("idempotent: %q: %w", key, err)
		}
		if claimed.RowsAffected() == 0 {
			return recall(ctx, tx, key, payload, &value)
		}
		if value, err = fn(ctx, tx); err != nil {
			return err
		}
		result, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("idempotent: encoding the result of %q: %w", key, err)
		}
		if _, err := tx.Exec(ctx, resultSQL, key, result); err != nil {
			return fmt.Errorf("idempotent: %q: %w", key, err)
		}
		return nil
	}
	err := inSavepoint(ctx, tx, do)
	if errors.Is(err, errRemoved) {
		err = inSavepoint(ctx, tx, do) // the old record was deleted, so the key is new
	}
	return value, err
}

// errRemoved means that the record was deleted after it blocked the insert.
var errRemoved = errors.New("idempotent: the record of the job was deleted at the same time")

// settling is how long the server may take to end a savepoint.
const settling = 10 * time.Second

// inSavepoint runs f in a savepoint of tx and releases it if f succeeds. If f fails or panics, it
// rolls the savepoint back, even if ctx has ended: otherwise the caller could commit the unfinished
// work of f with another context.
func inSavepoint(ctx context.Context, tx pgx.Tx, f func(pgx.Tx) error) (err error) {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	end := inner.Rollback
	defer func() {
		if failed := settle(ctx, inner, end); !errors.Is(failed, pgx.ErrTxClosed) {
			err = cmp.Or(err, failed)
		}
	}()
	if err = f(savepoint{inner}); err == nil {
		end = inner.Commit
	}
	return err
}

// settle ends a savepoint, even if ctx has ended. If the server is unreachable, it closes the
// connection, so that nothing can be committed.
func settle(ctx context.Context, inner pgx.Tx, end func(context.Context) error) error {
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	err := end(settled)
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		_ = inner.Conn().Close(settled) // it may be closed already
	}
	return err
}

// savepoint is a transaction that a job cannot commit, since that would store the record without a
// result.
type savepoint struct{ pgx.Tx }

// Commit returns an error.
func (savepoint) Commit(context.Context) error {
	return errors.New("idempotent: the job must not commit: the caller of DoTx commits")
}

// Rollback rolls back, even if ctx has ended: if the rollback is not sent, pgx considers the
// savepoint closed and sends no other.
func (s savepoint) Rollback(ctx context.Context) error { return settle(ctx, s.Tx, s.Tx.Rollback) }

// recall reads the stored result of a key.
func recall(ctx context.Context, tx pgx.Tx, key string, payload []byte, value any) error {
	var stored string
	var result []byte
	err := tx.QueryRow(ctx, keptSQL, key).Scan(&stored, &result)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: %q", errRemoved, key)
	case err != nil:
		return fmt.Errorf("idempotent: %q: %w", key, err)
	}
	switch {
	case stored != fingerprint(payload):
		return fmt.Errorf("%w: %q", idempotent.ErrMismatch, key)
	case result == nil:
		return fmt.Errorf("%w: %q, in this transaction", idempotent.ErrInProgress, key)
	}
	if err := json.Unmarshal(result, value); err != nil {
		return fmt.Errorf("idempotent: decoding the result of %q: %w", key, err)
	}
	return nil
}

// fingerprint returns what is stored of a payload.
func fingerprint(payload []byte) string {
	if payload == nil {
		return ""
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}
