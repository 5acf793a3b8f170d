//go:build unix

package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// patience is for what must not take long.
const patience = time.Minute

// A txn is a transaction of either driver.
type txn struct {
	lock, try func(ctx context.Context, name string, o ...pglock.TxOption) error
	exec      func(sql string) error
	value     func(sql string) (string, error)
	end       func(commit bool) error
}

// txDrivers begin a transaction on a connection of its own, at an isolation level
// in words; "" is the server's default.
var txDrivers = map[string]func(t *testing.T, dsn, isolation string) txn{
	"pgx":          beginPgx,
	"database/sql": beginSQL,
}

func beginPgx(t *testing.T, dsn, isolation string) txn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(conn) })
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(isolation)})
	if err != nil {
		t.Fatal(err)
	}
	return pgxTxn(t.Context(), tx)
}

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = conn.Close(ctx) // some tests end it otherwise
}

func pgxTxn(ctx context.Context, tx pgx.Tx) txn {
	return txn{
		lock: func(ctx context.Context, name string, o ...pglock.TxOption) error {
			return pglock.LockTx(ctx, tx, name, o...)
		},
		try: func(ctx context.Context, name string, o ...pglock.TxOption) error {
			return pglock.TryLockTx(ctx, tx, name, o...)
		},
		exec: func(sql string) error { _, err := tx.Exec(ctx, sql); return err },
		value: func(sql string) (s string, err error) {
			err = tx.QueryRow(ctx, sql).Scan(&s)
			return s, err
		},
		end: func(commit bool) error {
			if commit {
				return tx.Commit(ctx)
			}
			return tx.Rollback(ctx)
		},
	}
}

func beginSQL(t *testing.T, dsn, isolation string) txn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	level := map[string]sql.IsolationLevel{
		"": sql.LevelDefault, "read committed": sql.LevelReadCommitted, "read uncommitted": sql.LevelReadUncommitted,
		"repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
	}[isolation]
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	return txn{
		lock: func(ctx context.Context, name string, o ...pglock.TxOption) error {
			return pglock.LockSQLTx(ctx, tx, name, o...)
		},
		try: func(ctx context.Context, name string, o ...pglock.TxOption) error {
			return pglock.TryLockSQLTx(ctx, tx, name, o...)
		},
		exec: func(sql string) error { _, err := tx.Exec(sql); return err },
		value: func(sql string) (s string, err error) {
			err = tx.QueryRow(sql).Scan(&s)
			return s, err
		},
		end: func(commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
	}
}

// bothDrivers runs a test for pgx and for database/sql.
func bothDrivers(t *testing.T, p *pgtest.Postgres, test func(t *testing.T, begin func(isolation string) txn)) {
	for name, begin := range txDrivers {
		t.Run(name, func(t *testing.T) {
			test(t, func(isolation string) txn { return begin(t, p.DSN(), isolation) })
		})
	}
}

// must fails the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantHeld checks that an error says that name is held, because of cause if it is
// not nil.
func wantHeld(t *testing.T, err error, name string, cause error) {
	t.Helper()
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok || held.Name != name || cause != nil && !errors.Is(err, cause) {
		t.Errorf("got %v, want %q held because of %v", err, name, cause)
	}
}
