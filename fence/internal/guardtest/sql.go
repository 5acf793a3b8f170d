package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// SQL is a guard in a database.
type SQL struct {
	DB     *sql.DB
	Dollar bool // parameters are $1, not ?
	Apart  bool // a Store has returned its connection to the pool before the tracer is called
	Check  func(ctx context.Context, tx *sql.Tx, resource string) error
	Store  interface { // shares its floors with Check
		Check(ctx context.Context, resource string, f fence.Fence) error
	}
	// Waits is a query that counts the sessions that wait for a lock. Again reports whether a
	// transaction may be repeated after an error.
	Waits string
	Again func(error) bool
}

// Invoices creates the table of the suite.
const Invoices = "CREATE TABLE invoice (id VARCHAR(100) PRIMARY KEY, value TEXT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)"

// Text returns a statement with the parameter style of the database.
func (s SQL) Text(statement string) string {
	for n := 1; s.Dollar && strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
	}
	return statement
}

// InTx runs fn in a transaction and commits unless fn fails.
func (s SQL) InTx(ctx context.Context, level sql.IsolationLevel, fn func(*sql.Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Invoice returns a row that Check guards.
func (s SQL) Invoice(t *testing.T, id string, level sql.IsolationLevel) Resource {
	t.Helper()
	if _, err := s.DB.Exec(s.Text("INSERT INTO invoice (id, value) VALUES (?, '')"), id); err != nil {
		t.Fatal(err)
	}
	return Resource{
		Name: id,
		Write: func(ctx context.Context, value string) error {
			return s.InTx(ctx, level, func(tx *sql.Tx) error {
				if err := s.Check(ctx, tx, id); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, s.Text("UPDATE invoice SET value = ? WHERE id = ?"), value, id)
				return err
			})
		},
		Read: func() (value string, err error) {
			return value, s.DB.QueryRow(s.Text("SELECT value FROM invoice WHERE id = ?"), id).Scan(&value)
		},
	}
}

// Run tests the guard. The table must exist.
func (s SQL) Run(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			if err := Run(t.Context(), s.Invoice(t, "invoice "+level.String(), level)); err != nil {
				t.Error(err)
			}
			s.race(t, level)
		})
	}
	t.Run("store", s.store)
	t.Run("tracer", s.tracer)
	t.Run("uncommitted", s.uncommitted)
}

// race: of many concurrent holders, the accepted writes are in the order of their tokens.
func (s SQL) race(t *testing.T, level sql.IsolationLevel) {
	if _, err := s.DB.Exec("DELETE FROM written"); err != nil {
		t.Fatal(err)
	}
	const writers = 16
	var all sync.WaitGroup
	for token := range int64(writers) {
		all.Go(func() { // ends with its transaction
			ctx := Under(t, token+1)
			write := func(tx *sql.Tx) error {
				if err := s.Check(ctx, tx, "race "+level.String()); err != nil {
					return err
				}
				_, err := tx.Exec(s.Text("INSERT INTO written (token) VALUES (?)"), token+1)
				return err
			}
			err := s.InTx(ctx, level, write)
			for s.Again(err) { // nothing was written
				err = s.InTx(ctx, level, write)
			}
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var wrong, last int64
	err := s.DB.QueryRow(`SELECT COUNT(CASE WHEN token < earlier THEN 1 END), MAX(token)
		FROM (SELECT token, LAG(token) OVER (ORDER BY id) AS earlier FROM written) AS w`).Scan(&wrong, &last)
	if err != nil || wrong != 0 || last != writers {
		t.Errorf("%d writes after greater tokens, the greatest is %d, %v", wrong, last, err)
	}
}

// store: a Store shares its floors with transactions.
func (s SQL) store(t *testing.T) {
	r := s.Invoice(t, "store", sql.LevelReadCommitted)
	at := func(token int64) error {
		return s.Store.Check(t.Context(), r.Name, fence.Fence{Token: token, Floor: token})
	}
	if err := errors.Join(at(6), at(6)); err != nil {
		t.Error(err)
	}
	if err := r.Write(Under(t, 5), "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after the store has seen 6, a transaction with 5: %v", err)
	}
	if err := r.Write(Under(t, 7), "next"); err != nil {
		t.Error(err)
	}
	stale, ok := errors.AsType[*fence.StaleError](at(6))
	if !ok || stale.Floor != 7 {
		t.Errorf("after a transaction with 7, the store with 6: %+v", stale)
	}
	if err := at(0); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("without a token: %v", err)
	}
}

// tracer: a tracer that panics leaves no open transaction, whose row lock would block all others.
func (s SQL) tracer(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(context.Context, fencelock.TraceStale) {
			if used := s.DB.Stats().InUse; used != 0 && s.Apart {
				t.Errorf("%d connections are in use while the tracer runs", used)
			}
			panic("tracer")
		},
	}})
	lock, err := locks.Acquire(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	next := fence.Fence{Name: "lock", Token: lock.Token() + 1, Floor: lock.Token() + 1}
	if err := s.Store.Check(t.Context(), "traced", next); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if used := s.DB.Stats().InUse; recover() == nil || used != 0 {
			t.Errorf("the tracer was not told, or %d connections are in use", used)
		}
	}()
	_ = s.Store.Check(lock.Context(), "traced", fence.Fence{Name: "lock", Token: lock.Token(), Floor: lock.Token()})
}

// uncommitted: a successor waits until a transaction that has passed the guard has ended, so that
// the writes are in the order of the tokens.
func (s SQL) uncommitted(t *testing.T) {
	r := s.Invoice(t, "uncommitted", sql.LevelReadCommitted)
	written := make(chan error, 1)
	err := s.InTx(t.Context(), sql.LevelReadCommitted, func(tx *sql.Tx) error {
		if err := s.Check(Under(t, 5), tx, r.Name); err != nil {
			return err
		}
		go func() { written <- r.Write(Under(t, 6), "second") }() // ends with the second transaction
		// Wait until the server reports that it waits for a lock. MariaDB caches the answer for a
		// tenth of a second.
		for waits := 0; waits == 0; time.Sleep(200 * time.Millisecond) {
			if err := s.DB.QueryRow(s.Waits).Scan(&waits); err != nil {
				return err
			}
		}
		_, err := tx.Exec(s.Text("UPDATE invoice SET value = 'first' WHERE id = ?"), r.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read(); got != "second" {
		t.Errorf("the invoice has %q, %v, want that of the second holder", got, err)
	}
}

// Column writes a row with its own floor. The suite needs the stored floor, which Wrote does not
// know.
func (s SQL) Column(ctx context.Context, value string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	result, err := s.DB.ExecContext(ctx, s.Text(`UPDATE invoice SET value = ?, fence = GREATEST(fence, ?)
		WHERE id = 'column' AND fence <= ?`), value, f.Floor, f.Token)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	err = fence.Wrote(ctx, "column", rows)
	if stale, ok := errors.AsType[*fence.StaleError](err); ok {
		return errors.Join(s.DB.QueryRow("SELECT fence FROM invoice WHERE id = 'column'").Scan(&stale.Floor), err)
	}
	return err
}
