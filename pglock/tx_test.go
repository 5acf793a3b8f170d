//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

func TestTxExcludes(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		a, b := begin(""), begin("")
		must(t, a.lock(t.Context(), "job"), a.try(t.Context(), "job")) // twice is harmless
		wantHeld(t, b.try(t.Context(), "job"), "job", nil)
		err := b.lock(soon(t, 500*time.Millisecond), "job")
		wantHeld(t, err, "job", context.DeadlineExceeded)
		pid, _ := a.value("SELECT pg_backend_pid()::text")
		if want := "pid " + pid + " on the PostgreSQL server"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
		must(t, b.try(t.Context(), "other"), b.exec("SELECT 1"))

		done := make(chan error, 1)
		go func() { done <- b.lock(t.Context(), "job") }()
		awaitWaiters(t, p, 1)
		must(t, a.end(true), <-done)
		if n := p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); n != "2" {
			t.Errorf("%s locks are held, want 2", n)
		}
		must(t, b.end(false))
		if n := p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); n != "0" {
			t.Errorf("%s locks are left, want 0", n)
		}
	})
}

// awaitWaiters returns when n requests for advisory locks wait in the server.
func awaitWaiters(t *testing.T, p *pgtest.Postgres, n int) {
	t.Helper()
	want := fmt.Sprint(n)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(5 * time.Millisecond) {
		if p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND NOT granted") == want {
			return
		}
	}
	t.Fatalf("there are not %d waiters", n)
}

func TestTxShared(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		a, b, c := begin(""), begin(""), begin("")
		must(t, a.lock(t.Context(), "r", pglock.Shared), b.try(t.Context(), "r", pglock.Shared))
		wantHeld(t, c.try(t.Context(), "r"), "r", nil)

		// A try does not pass a waiter, not even a shared one that could.
		done := make(chan error, 1)
		go func() { done <- c.lock(t.Context(), "r") }()
		awaitWaiters(t, p, 1)
		d := begin("")
		wantHeld(t, d.try(t.Context(), "r", pglock.Shared), "r", nil)
		must(t, a.end(true), b.end(true), <-done)

		// And a shared one waits for an exclusive one.
		go func() { done <- d.lock(t.Context(), "r", pglock.Shared) }()
		awaitWaiters(t, p, 1)
		must(t, c.end(true), <-done)
		mode := p.Query(t, "SELECT mode FROM "+locksHere+" WHERE locktype = 'advisory'")
		if mode != "ShareLock" {
			t.Errorf("the mode is %s, want ShareLock", mode)
		}
	})
}

// After a deadline the transaction goes on, with its own work and settings.
func TestTxDeadlineLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	p.Exec(t, "CREATE TABLE work (who text)")
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		for _, before := range []string{"0", "5min", "1234ms"} {
			holder, tx := begin(""), begin("")
			must(t, holder.lock(t.Context(), "job"))
			must(t, tx.exec("SET LOCAL lock_timeout = '"+before+"'"),
				tx.exec("INSERT INTO work VALUES ('"+t.Name()+before+"')"), tx.lock(t.Context(), "kept"))

			start := time.Now()
			wantHeld(t, tx.lock(soon(t, 500*time.Millisecond), "job"), "job", context.DeadlineExceeded)
			t.Logf("a wait limit of 500 ms took %v", time.Since(start))
			if took := time.Since(start); took < 500*time.Millisecond {
				t.Errorf("the wait took %v, less than its limit", took)
			}
			if got, err := tx.value("SHOW lock_timeout"); err != nil || got != before {
				t.Errorf("lock_timeout is %q, %v, want %s", got, err, before)
			}
			if n := p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); n != "2" {
				t.Errorf("%s advisory locks, want the holder's and the one taken before", n)
			}
			must(t, tx.end(true), holder.end(true))
			if n := p.Query(t, "SELECT count(*) FROM work WHERE who = $1", t.Name()+before); n != "1" {
				t.Errorf("the transaction committed %s rows, want 1", n)
			}
		}
	})
}

// A granted wait keeps the lock, since its savepoint was released, and the settings.
func TestTxGrantLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		for _, before := range []string{"0", "7s"} {
			holder, tx := begin(""), begin("")
			must(t, holder.lock(t.Context(), "job"), tx.exec("SET lock_timeout = '"+before+"'"))
			done := make(chan error, 1)
			go func() { done <- tx.lock(soon(t, patience), "job") }()
			awaitWaiters(t, p, 1)
			must(t, holder.end(false), <-done)
			if got, err := tx.value("SHOW lock_timeout"); err != nil || got != before {
				t.Errorf("lock_timeout is %q, %v, want %s", got, err, before)
			}
			if n := p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND granted"); n != "1" {
				t.Errorf("%s locks, want 1", n)
			}
			if err := tx.exec("RELEASE SAVEPOINT fencelock_wait"); err == nil {
				t.Error("a savepoint is left")
			}
			must(t, tx.end(false))
		}
	})
}

// The application's own limits end a wait as well, and leave the transaction.
func TestTxServerLimits(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		holder := begin("")
		must(t, holder.lock(t.Context(), "job"))
		for setting, state := range map[string]string{"lock_timeout": "55P03", "statement_timeout": "57014"} {
			tx := begin("")
			must(t, tx.exec("SET LOCAL "+setting+" = '1s'")) // the short statements take less
			for _, ctx := range []context.Context{t.Context(), soon(t, patience)} {
				err := tx.lock(ctx, "job")
				wantHeld(t, err, "job", nil)
				var e interface{ SQLState() string }
				if !errors.As(err, &e) || e.SQLState() != state || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, want SQLSTATE %s", setting, err, state)
				}
				if got, err := tx.value("SHOW " + setting); err != nil || got != "1s" {
					t.Errorf("%s is %q, %v", setting, got, err)
				}
			}
			must(t, tx.end(true))
		}
		tx := begin("")
		must(t, tx.exec("SET LOCAL lock_timeout = '1h'"))
		wantHeld(t, tx.lock(soon(t, 500*time.Millisecond), "job"), "job", context.DeadlineExceeded)
	})
}

// A cancelled wait ends the transaction, and says so.
func TestTxCancelled(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		holder, tx := begin(""), begin("")
		must(t, holder.lock(t.Context(), "job"), tx.lock(t.Context(), "mine"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tx.lock(ctx, "job") }()
		awaitWaiters(t, p, 1)
		start := time.Now()
		cancel()
		err := <-done
		t.Logf("a cancel took %v: %v", time.Since(start), err)
		wantHeld(t, err, "job", context.Canceled)
		if !strings.Contains(err.Error(), "ended the transaction") {
			t.Errorf("%v does not say what became of the transaction", err)
		}
		if tx.exec("SELECT 1") == nil {
			t.Error("the transaction goes on")
		}
		// The driver tells the server, so what the transaction held is free soon,
		// although the one it waited for still holds.
		next := begin("")
		must(t, next.lock(soon(t, patience), "mine"))
		wantHeld(t, next.try(t.Context(), "job"), "job", nil)
		must(t, holder.end(true), next.lock(soon(t, patience), "job"))
	})
}

// With pgx configured to cancel politely, the transaction survives a cancel too.
func TestTxCancelledPolitely(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	config, err := pgx.ParseConfig(p.DSN())
	must(t, err)
	config.BuildContextWatcherHandler = politely
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { closeSoon(conn) })
	begun, err := conn.Begin(t.Context())
	must(t, err)
	tx := pgxTxn(t.Context(), begun)
	holder := beginPgx(t, p.DSN(), "")
	must(t, holder.lock(t.Context(), "job"), tx.lock(t.Context(), "mine"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tx.lock(ctx, "job") }()
	awaitWaiters(t, p, 1)
	cancel()
	wantHeld(t, <-done, "job", context.Canceled)
	wantHeld(t, holder.try(t.Context(), "mine"), "mine", nil)
	must(t, tx.end(true), holder.try(t.Context(), "mine"))
}

// A cancel that comes during the first try, before the savepoint, costs the transaction nothing.
func TestTxCancelledDuringTheTry(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	p.Exec(t, "SET allow_system_table_mods = on", "ALTER FUNCTION pg_catalog.pg_is_in_recovery() RENAME TO pg_is_in_recovery_of_before",
		"CREATE FUNCTION pg_catalog.pg_is_in_recovery() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN false; END'")
	config, err := pgx.ParseConfig(p.DSN())
	must(t, err)
	config.BuildContextWatcherHandler = politely
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { closeSoon(conn) })
	begun, err := conn.Begin(t.Context())
	must(t, err)
	tx, holder := pgxTxn(t.Context(), begun), beginPgx(t, p.DSN(), "")
	must(t, holder.lock(t.Context(), "job"), tx.lock(t.Context(), "mine"))
	for _, name := range []string{"job", "free"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if err := tx.lock(ctx, name); name == "job" {
			wantHeld(t, err, "job", context.Canceled)
		} else if err != nil {
			t.Errorf("a lock that was free: %v", err)
		}
	}
	must(t, tx.exec("SELECT 1"), tx.end(true), holder.try(t.Context(), "mine"))
}

// A context that has ended before the call sends nothing and harms nothing.
func TestTxEndedContext(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tx := begin("")
		if err := tx.lock(ctx, "job"); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v, want only context.Canceled", err)
		}
		must(t, tx.lock(t.Context(), "job"))
	})
}

func TestTxIsolation(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		for isolation, fine := range map[string]bool{
			"": true, "read uncommitted": true, "read committed": true, "repeatable read": false, "serializable": false,
		} {
			tx := begin(isolation)
			for what, err := range map[string]error{"lock": tx.lock(t.Context(), "job"), "try": tx.try(t.Context(), "job")} {
				if fine && err != nil || !fine && !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%s at %q: %v", what, isolation, err)
				}
			}
			if n := p.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); !fine && n != "0" {
				t.Errorf("%s locks after a refusal", n)
			}
			must(t, tx.lock(t.Context(), "job", pglock.AllowSnapshot), tx.end(true)) // the refusal harmed nothing
		}
	})
}

func TestTxDeadlock(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t, "deadlock_timeout=100ms")
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		a, b := begin(""), begin("")
		must(t, a.lock(t.Context(), "x"), b.lock(t.Context(), "y"))
		type result struct {
			tx  txn
			err error
		}
		done := make(chan result, 2)
		go func() { done <- result{a, a.lock(soon(t, patience), "y")} }()
		go func() { done <- result{b, b.lock(soon(t, patience), "x")} }()
		victim := <-done
		var e interface{ SQLState() string }
		if err := victim.err; !errors.As(err, &e) || e.SQLState() != "40P01" || errors.Is(err, driver.ErrHeld) ||
			!errors.Is(err, pglock.ErrDeadlock) {
			t.Errorf("got %v, want a deadlock", err)
		}
		must(t, victim.tx.end(false))
		winner := <-done
		must(t, winner.err, winner.tx.end(true))
	})
}

func TestTxFailedTransaction(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		tx := begin("")
		if tx.exec("SELECT 1 / 0") == nil {
			t.Fatal("a division by zero went well")
		}
		for what, err := range map[string]error{"lock": tx.lock(t.Context(), "job"), "try": tx.try(t.Context(), "job")} {
			if err == nil || !strings.Contains(err.Error(), "already failed; roll it back") {
				t.Errorf("%s in a failed transaction: %v", what, err)
			}
		}
		must(t, tx.end(false))
		if err := tx.lock(t.Context(), "job"); err == nil {
			t.Error("locked in a transaction that has ended")
		}
	})
}

func TestTxNames(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		tx := begin("")
		for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("n", 513)} {
			if err := tx.lock(t.Context(), name); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q: got %v, want ErrInvalid", name, err)
			}
		}
		must(t, tx.lock(t.Context(), "it's $1 \\ \"quoted\" ü 日"), tx.lock(t.Context(), pglock.Key(-42)))
		got := p.Query(t, "SELECT bool_or(((classid::bigint << 32) | objid::bigint) = -42 AND objsubid = 1) FROM "+locksHere+" WHERE locktype = 'advisory'")
		if got != "true" {
			t.Error("Key(-42) is not the advisory lock of -42")
		}
		other := p.Connect(t)
		for _, sql := range []string{
			"SELECT pg_try_advisory_lock(-42)",
			`SELECT pg_try_advisory_lock(hashtextextended('it''s $1 \ "quoted" ü 日', 0))`,
		} {
			var locked bool
			must(t, other.QueryRow(t.Context(), sql).Scan(&locked))
			if locked {
				t.Errorf("%s met no lock", sql)
			}
		}
	})
}

// TestTxTryListsNoLocks: a try that is refused costs the server no more than one that is not,
// however many locks it has.
func TestTxTryListsNoLocks(t *testing.T) {
	conn := pgtest.Database(t).Connect(t)
	rows, err := conn.Query(t.Context(), "EXPLAIN VERBOSE "+pglock.TryTxSQL, "job", nil, false, false)
	must(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if all := strings.Join(plan, "\n"); strings.Contains(all, "pg_lock") || !strings.Contains(all, "pg_try_advisory_xact_lock") {
		t.Errorf("the plan of a try:\n%s", all)
	}
}
