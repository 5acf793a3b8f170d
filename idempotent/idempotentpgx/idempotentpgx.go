// Package idempotentpgx does a job once for each key in a transaction of PostgreSQL: what
// the job writes, and the note that it is done, are committed together or not at all. So
// effects in that database happen exactly once, whatever dies or freezes; no lease is
// needed, since a transaction is one.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		total, err := idempotentpgx.DoTx(ctx, tx, "invoice:42", nil, func(ctx context.Context, tx pgx.Tx) (int, error) {
//			return post(ctx, tx) // in tx alone
//		})
//		return err
//	})
//
// What the job does outside of the database may happen again, if the transaction is
// rolled back afterwards: package idempotent is for that.
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

// Schema returns the SQL of the table that DoTx needs, fencelock_once. It is the
// application's own: it finds the table by its search path, and deletes rows that are old
// enough, by their column done.
func Schema() string { return schema }

const (
	claimSQL  = `INSERT INTO fencelock_once (key, payload) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING`
	resultSQL = `UPDATE fencelock_once SET result = $2 WHERE key = $1`
	keptSQL   = `SELECT payload, result FROM fencelock_once WHERE key = $1`
)

// DoTx returns the result of the job of a key: what fn returns, if no transaction that
// was committed has done the job, or else what is stored with the key. The result is
// kept as JSON.
//
// While another transaction does the job DoTx waits for its end, as long as ctx and the
// server's lock_timeout allow; if that one is rolled back, this one does the job. What fn
// writes must go through the tx it is given, a savepoint of the caller's. If fn fails, its
// error is returned as it is and the savepoint is rolled back, the note included, even if
// ctx has ended. Nothing counts before the caller has committed. A job that asks for its own
// key gets idempotent.ErrInProgress.
//
// payload is what the job depends on, nil for nothing: the same key with another one is
// idempotent.ErrMismatch. At an isolation level above READ COMMITTED the server may refuse
// the transaction (40001), and the caller makes it again, as with package optimisticpgx.
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
		err = inSavepoint(ctx, tx, do) // the key is new
	}
	return value, err
}

// errRemoved says that a note was there, and is not there any more: it was old enough.
var errRemoved = errors.New("idempotent: what was kept of the job was removed just now")

// settling is how long the server has to end a savepoint.
const settling = 10 * time.Second

// inSavepoint runs f in a savepoint of tx, which is released if f succeeds. Otherwise, and
// if f panics, it is rolled back, though ctx may have ended: the caller may commit tx
// under another context, and what f has left half done would be committed with it.
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

// settle ends a savepoint, whether ctx has ended or not. If the server cannot be told, the
// connection is closed, and nobody can commit any more.
func settle(ctx context.Context, inner pgx.Tx, end func(context.Context) error) error {
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	err := end(settled)
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		_ = inner.Conn().Close(settled) // it may be closed
	}
	return err
}

// savepoint is a transaction that a job cannot commit: the note would be there, and no
// result.
type savepoint struct{ pgx.Tx }

// Commit refuses.
func (savepoint) Commit(context.Context) error {
	return errors.New("idempotent: the job must not commit: its caller does that, when DoTx has returned")
}

// Rollback rolls back, whether ctx has ended or not: after one that was not sent, pgx takes the
// savepoint for closed, and sends no other.
func (s savepoint) Rollback(ctx context.Context) error { return settle(ctx, s.Tx, s.Tx.Rollback) }

// recall reads what is stored with a key.
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
		return fmt.Errorf("%w: %q, by this very transaction", idempotent.ErrInProgress, key)
	}
	if err := json.Unmarshal(result, value); err != nil {
		return fmt.Errorf("idempotent: decoding the result of %q: %w", key, err)
	}
	return nil
}

// fingerprint is what is stored of a payload.
func fingerprint(payload []byte) string {
	if payload == nil {
		return ""
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}
