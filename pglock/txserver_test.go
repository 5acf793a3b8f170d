//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// What servers, poolers and administrators do to a transaction-level lock.

func TestTxStandby(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	s := p.Standby(t)
	bothDrivers(t, s, func(t *testing.T, begin func(string) txn) {
		tx := begin("")
		for what, err := range map[string]error{"lock": tx.lock(t.Context(), "job"), "try": tx.try(t.Context(), "job")} {
			if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
				t.Errorf("%s on a standby: %v", what, err)
			}
		}
		if n := s.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); n != "0" {
			t.Errorf("%s locks on the standby", n)
		}
	})
}

// A transaction stays on one connection of the server, so a pooler is no harm, in
// either mode; not even with the simple protocol, which poolers often need.
func TestTxPooler(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	for _, mode := range []string{"transaction", "session"} {
		b := pgtest.StartPgBouncer(t, p, mode)
		t.Run(mode, func(t *testing.T) {
			begin := func() txn { return beginPgx(t, b.DSN()+"&default_query_exec_mode=simple_protocol", "") }
			for _, name := range []string{"it's", pglock.Key(-9223372036854775808)} {
				a, c := begin(), begin()
				must(t, a.lock(t.Context(), name))
				wantHeld(t, c.try(t.Context(), name), name, nil)
				wantHeld(t, c.lock(soon(t, 500*time.Millisecond), name), name, context.DeadlineExceeded)
				done := make(chan error, 1)
				go func() { done <- c.lock(soon(t, patience), name) }()
				awaitWaiters(t, p, 1)
				must(t, a.end(true), <-done)
				if got, err := c.value("SHOW lock_timeout"); err != nil || got != "0" {
					t.Errorf("lock_timeout is %q, %v", got, err)
				}
				must(t, c.end(true))
			}
		})
	}
}

// A transaction that was prepared has no process, and keeps its locks.
func TestTxHeldByPrepared(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t, "max_prepared_transactions=2")
	conn := p.Connect(t)
	for _, sql := range []string{"BEGIN", "SELECT pg_advisory_xact_lock(42)", "PREPARE TRANSACTION 'two phases'"} {
		_, err := conn.Exec(t.Context(), sql)
		must(t, err)
	}
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		err := begin("").lock(soon(t, 500*time.Millisecond), pglock.Key(42))
		wantHeld(t, err, pglock.Key(42), context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), "a prepared transaction") {
			t.Errorf("%v does not name the holder", err)
		}
	})
	p.Exec(t, "ROLLBACK PREPARED 'two phases'")
}

// A role without privileges still learns who is in the way.
func TestTxUnprivilegedRole(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	p.Exec(t, "CREATE ROLE app LOGIN", "REVOKE ALL ON pg_locks, pg_stat_activity FROM PUBLIC")
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		holder := begin("")
		must(t, holder.exec("SET application_name = 'nightly'"), holder.lock(t.Context(), "job"))
		defer func() { must(t, holder.end(true)) }()
		tx := beginPgx(t, p.As("app"), "")
		err := tx.lock(soon(t, 500*time.Millisecond), "job")
		if wantHeld(t, err, "job", context.DeadlineExceeded); err != nil && !strings.Contains(err.Error(), "(nightly)") {
			t.Errorf("%v does not name the application", err)
		}
		must(t, tx.exec("SELECT 1"))
	})
}

func TestTxInterruptedByAnAdministrator(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	const waiters = " FROM " + locksHere + " WHERE locktype = 'advisory' AND NOT granted"
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		holder := begin("")
		must(t, holder.lock(t.Context(), "job"))
		for what, survives := range map[string]bool{"pg_cancel_backend": true, "pg_terminate_backend": false} {
			tx := begin("")
			done := make(chan error, 1)
			go func() { done <- tx.lock(soon(t, patience), "job") }()
			awaitWaiters(t, p, 1)
			p.Exec(t, "SELECT "+what+"(pid)"+waiters)
			err := <-done
			if errors.Is(err, driver.ErrHeld) != survives || err == nil {
				t.Errorf("%s: got %v", what, err)
			}
			if goesOn := tx.exec("SELECT 1") == nil; goesOn != survives {
				t.Errorf("%s: the transaction goes on: %v, want %v", what, goesOn, survives)
			}
		}
		must(t, holder.end(true))
	})
}

// A server that crashes ends all transactions and grants nothing.
func TestTxCrash(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		holder, tx := begin(""), begin("")
		must(t, holder.lock(t.Context(), "job"))
		done := make(chan error, 1)
		go func() { done <- tx.lock(soon(t, patience), "job") }()
		awaitWaiters(t, p, 1)
		p.Crash(t)
		if err := <-done; err == nil || errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v, want the end of the connection", err)
		}
		if holder.end(true) == nil {
			t.Error("a transaction was committed after a crash")
		}
	})
}

// deadlineAtWill is a context whose deadline passes when passed is closed.
type deadlineAtWill struct {
	context.Context
	passed chan struct{}
}

func (c *deadlineAtWill) Done() <-chan struct{} { return c.passed }

func (c *deadlineAtWill) Err() error {
	select {
	case <-c.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A server that does not answer holds a caller up for ten seconds after the deadline.
func TestTxFrozenServer(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	type result struct {
		driver string
		err    error
	}
	ctx := &deadlineAtWill{Context: soon(t, patience), passed: make(chan struct{})}
	done := make(chan result, len(txDrivers))
	var holders []txn
	for name, begin := range txDrivers {
		holder, tx := begin(t, p.DSN(), ""), begin(t, p.DSN(), "")
		must(t, holder.lock(t.Context(), name))
		holders = append(holders, holder)
		go func() { done <- result{name, tx.lock(ctx, name)} }()
	}
	awaitWaiters(t, p, len(txDrivers))
	p.Freeze(t)
	start := time.Now()
	close(ctx.passed)
	for range txDrivers {
		r := <-done
		took := time.Since(start)
		t.Logf("%s: %v after the deadline: %v", r.driver, took, r.err)
		wantHeld(t, r.err, r.driver, context.DeadlineExceeded)
		if took < pglock.TxGrace || !strings.Contains(r.err.Error(), "ended the transaction") {
			t.Errorf("%s: the wait ended after %v, and does not say what became of the transaction: %v", r.driver, took, r.err)
		}
	}
	p.Thaw(t)
	for _, holder := range holders {
		must(t, holder.end(true))
	}
}

// Each answer comes later than the wait may take. The transaction goes on all the same.
func TestTxLateAnswers(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	proxy, dsn := throughProxy(t, p)
	holder, tx := beginPgx(t, p.DSN(), ""), beginPgx(t, dsn+"&default_query_exec_mode=simple_protocol", "")
	must(t, holder.lock(t.Context(), "job"), tx.lock(t.Context(), "mine"))
	proxy.Delay(faults.ToClient, 400*time.Millisecond)
	wantHeld(t, tx.lock(soon(t, 500*time.Millisecond), "job"), "job", context.DeadlineExceeded)
	must(t, tx.exec("SELECT 1"))
	wantHeld(t, holder.try(t.Context(), "mine"), "mine", nil)
	must(t, tx.end(true), holder.try(t.Context(), "mine"))
}

// A pgx transaction inside another, which is a savepoint, works like any other.
func TestTxNested(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	conn := p.Connect(t)
	outer, err := conn.Begin(t.Context())
	must(t, err)
	inner, err := outer.Begin(t.Context())
	must(t, err)
	other := beginPgx(t, p.DSN(), "")
	must(t, pglock.LockTx(t.Context(), outer, "outer"), pglock.LockTx(t.Context(), inner, "inner"))
	must(t, other.lock(t.Context(), "busy"))
	wantHeld(t, pglock.LockTx(soon(t, 500*time.Millisecond), inner, "busy"), "busy", context.DeadlineExceeded)
	wantHeld(t, other.try(t.Context(), "inner"), "inner", nil)
	must(t, inner.Commit(t.Context()))
	wantHeld(t, other.try(t.Context(), "inner"), "inner", nil)
	must(t, outer.Rollback(t.Context()), other.try(t.Context(), "inner"), other.try(t.Context(), "outer"))
}

// Rows that are still being read keep the connection busy, and the error says so.
func TestTxBusyConnection(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	conn := p.Connect(t)
	tx, err := conn.Begin(t.Context())
	must(t, err)
	rows, err := tx.Query(t.Context(), "SELECT generate_series(1, 10)")
	must(t, err)
	if err := pglock.LockTx(t.Context(), tx, "job"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("got %v", err)
	}
	rows.Close()
	must(t, pglock.LockTx(t.Context(), tx, "job"), tx.Rollback(t.Context()))
}

// In every mode of pgx the arguments reach the server as they are.
func TestTxExecModes(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		dsn := p.DSN() + "&default_query_exec_mode=" + strings.ReplaceAll(mode.String(), " ", "_")
		a, b := beginPgx(t, dsn, ""), beginPgx(t, dsn, "")
		for _, name := range []string{`a'"\$1`, pglock.Key(7)} {
			must(t, a.lock(t.Context(), name))
			wantHeld(t, b.lock(soon(t, 500*time.Millisecond), name), name, context.DeadlineExceeded)
		}
		must(t, a.end(true), b.end(true))
	}
}
