//go:build unix

package sqlrecords_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/optimistic"
)

// TestTransactionsAreMadeAgain: what MariaDB refuses for what others do at the same time is
// made again by optimistic.Tx, and what it did is there once. It stands here since the tests
// of package optimistic do without the client of MariaDB.
func TestTransactionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := startMariaDB(t)
	s.exec(t, "CREATE TABLE account (id INT PRIMARY KEY, cents INT NOT NULL) ENGINE = InnoDB",
		"INSERT INTO account VALUES (1, 0), (2, 0)")
	add := func(ctx context.Context, tx *sql.Tx, id int) error {
		if _, err := tx.ExecContext(ctx, "UPDATE account SET cents = cents + 1 WHERE id = ?", id); err != nil {
			return fmt.Errorf("account %d: %w", id, err)
		}
		return nil
	}
	want := 0
	added := func(kind string, n, tries, least int) {
		t.Helper()
		want += n
		if got := s.number(t, "SELECT SUM(cents) FROM account"); got != want || tries < least {
			t.Errorf("%s: %d cents after %d tries, want %d after at least %d", kind, got, tries, want, least)
		}
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		added("a deadlock, "+level.String(), 4, deadlock(t, s, level, add), 3)
	}
	added("a row in use", 2, rowInUseForATime(t, s, add), 2)
	added("an old snapshot", 2, oldSnapshot(t, s, add), 2)
}

// deadlock lets two transactions take two rows in opposite orders, and returns how many
// tries both needed.
func deadlock(t *testing.T, s *server, level sql.IsolationLevel, add func(context.Context, *sql.Tx, int) error) int {
	var mu sync.Mutex // guards tries
	tries := 0
	var both, met sync.WaitGroup
	met.Add(2)
	for _, ids := range [][2]int{{1, 2}, {2, 1}} {
		both.Go(func() { // ends when its transaction is committed
			meet := sync.OnceFunc(func() { met.Done(); met.Wait() })
			err := optimistic.Tx(t.Context(), s.db, &sql.TxOptions{Isolation: level}, func(ctx context.Context, tx *sql.Tx) error {
				mu.Lock()
				tries++
				mu.Unlock()
				if err := add(ctx, tx, ids[0]); err != nil {
					return err
				}
				meet() // both have their first row now
				return add(ctx, tx, ids[1])
			})
			if err != nil {
				t.Errorf("%v: %v", level, err)
			}
		})
	}
	both.Wait()
	return tries
}

// rowInUseForATime lets a transaction wait for a row for too long, once, and returns how
// many tries it needed.
func rowInUseForATime(t *testing.T, s *server, add func(context.Context, *sql.Tx, int) error) (tries int) {
	impatient := s.open(t, s.dsn(s.addr, settings{"innodb_lock_wait_timeout": "0"}))
	other, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback() // done before that, if the test gets on
	if err := add(t.Context(), other, 2); err != nil {
		t.Fatal(err)
	}
	err = optimistic.Tx(t.Context(), impatient, nil, func(ctx context.Context, tx *sql.Tx) error {
		if tries++; tries == 2 {
			if err := other.Rollback(); err != nil {
				return err
			}
		}
		if err := add(ctx, tx, 1); err != nil { // stays when the wait for the other row fails
			return err
		}
		return add(ctx, tx, 2)
	})
	if err != nil {
		t.Errorf("a row in use: %v", err)
	}
	return tries
}

// oldSnapshot lets a transaction write a row that somebody has changed since its snapshot,
// where the server refuses that, and returns how many tries it needed.
func oldSnapshot(t *testing.T, s *server, add func(context.Context, *sql.Tx, int) error) (tries int) {
	strict := s.open(t, s.dsn(s.addr, settings{"innodb_snapshot_isolation": "1"}))
	err := optimistic.Tx(t.Context(), strict, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(ctx context.Context, tx *sql.Tx) error {
		var cents int
		if err := tx.QueryRowContext(ctx, "SELECT cents FROM account WHERE id = 1").Scan(&cents); err != nil {
			return err
		}
		if tries++; tries == 1 {
			s.exec(t, "UPDATE account SET cents = cents + 1 WHERE id = 1")
		}
		return add(ctx, tx, 1)
	})
	if err != nil {
		t.Errorf("an old snapshot: %v", err)
	}
	return tries
}
