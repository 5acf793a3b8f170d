//go:build unix

package pglock_test

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
)

// TestDeadlockWithATransaction: a transaction has the name that a session waits
// for, and then waits for what that session has.
func TestDeadlockWithATransaction(t *testing.T) {
	pg := enginetest.StartPostgres(t, "deadlock_timeout=3s")
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	conn := pg.Connect(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"SET LOCAL deadlock_timeout = '1h'", // let it be the other one who finds the deadlock
		"SELECT pg_advisory_xact_lock(hashtextextended('a', 0))",
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	waiter := queueUp(t, t.Context(), e, request("a"))
	id := pg.Query(t, "SELECT id FROM fencelock.session s JOIN pg_stat_activity a ON a.pid = s.backend AND a.wait_event = 'advisory'")
	done := make(chan error, 1)
	go func() { // ends with the deadlock
		_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1717923430, $1::integer)", id)
		done <- err
	}()
	err = await(t, waiter, "the end of the wait").err
	if !errors.Is(err, pglock.ErrDeadlock) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the waiter: %v", err)
	}
	if err := await(t, done, "the transaction's lock"); err != nil {
		t.Errorf("the transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, e, try(t, e, request("a")))
}
