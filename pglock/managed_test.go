//go:build unix

package pglock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// withoutWAL replaces the functions that tell the timeline by one that raises an error, as managed
// servers do.
func withoutWAL(t *testing.T, pg *pgtest.Postgres, code string) {
	t.Helper()
	pg.Exec(t, "SET allow_system_table_mods = on",
		"ALTER FUNCTION pg_catalog.pg_current_wal_insert_lsn() RENAME TO pg_current_wal_insert_lsn_of_before",
		"ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO pg_walfile_name_of_before",
		"CREATE FUNCTION pg_catalog.pg_current_wal_insert_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '"+code+"'; END $$",
		"CREATE FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '"+code+"'; END $$",
		"RESET allow_system_table_mods")
}

// TestServersThatHideTheTimeline: Amazon Aurora answers 55000. After a restart, a crash and a
// promotion nothing is granted for MaxTTL, and tokens increase, though the clock was set back.
func TestServersThatHideTheTimeline(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"55000", "0A000", "42501"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.StartPostgres(t, "fsync=on")
			withoutWAL(t, pg, code)
			sb := pg.Standby(t)
			e := engine(t, pg.DSN(), short)
			must(t, e.Init(t.Context()))
			last := spend(t, e, shortRequest("a"), 3).Token
			must(t, e.Close())
			for _, fault := range []struct {
				name string
				pg   *pgtest.Postgres
				do   func()
			}{
				{"restart", pg, func() { pg.Restart(t) }},
				{"crash", pg, func() { pg.Crash(t) }},
				{"declared to be another server", pg, func() { pg.Exec(t, "UPDATE fencelock.epoch SET system = 0") }},
				{"promotion", sb, func() { pg.Stop(t); sb.Promote(t) }},
			} {
				fault.do()
				e := engine(t, fault.pg.DSN(), short)
				if g, err := e.Acquire(t.Context(), shortRequest("a")); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%s: token %d, %v; want a wait of MaxTTL", fault.name, g.Token, err)
				}
				l := regained(t, e, shortRequest("a"))
				if l.Token <= last {
					t.Errorf("%s: token %d after %d", fault.name, l.Token, last)
				}
				last = l.Token
				release(t, e, l)
				must(t, e.Close())
			}
		})
	}
}

// TestSlowClockAfterAQuarantine: a client whose clock stands before the restart does not close the
// server for the others, and for itself MaxTTL at most.
func TestSlowClockAfterAQuarantine(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), short).Init(t.Context()))
	for _, marked := range []bool{true, false} {
		pg.Crash(t)
		if wait := register(t, pg, "0"); wait == "0" {
			t.Error("after a crash, the server is open")
		}
		time.Sleep(short.MaxTTL + 100*time.Millisecond)
		if marked { // by a client that connects after the end
			if wait := register(t, pg, "0"); wait != "0" {
				t.Errorf("after MaxTTL, the server is closed for %s ms", wait)
			}
		}
		if wait := register(t, pg, "1 hour"); (wait == "0") != marked {
			t.Errorf("for the client with the slow clock, the server is closed for %s ms", wait)
		}
		other := engine(t, pg.DSN(), short)
		release(t, other, try(t, other, shortRequest("a")))
		eventually(t, "the server is open for the client with the slow clock", func() bool { return register(t, pg, "1 hour") == "0" })
	}
}

// TestTwoClocksAfterARestart: a client with a slow clock connects after a restart, and the server's
// clock is set forward. A client whose clock is right waits for MaxTTL nevertheless.
func TestTwoClocksAfterARestart(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), short).Init(t.Context()))
	pg.Crash(t)
	for _, ago := range []string{"0", "1 hour"} {
		if wait := register(t, pg, ago); wait == "0" {
			t.Errorf("for a client whose clock is behind by %s, the server is open", ago)
		}
	}
	pg.Exec(t, "UPDATE fencelock.start SET since = since - interval '30 minutes'") // the same as a clock that is set
	if wait := register(t, pg, "0"); wait == "0" {
		t.Error("the server is open for a client whose clock is right")
	}
}

// TestTwoWrongClocksAfterARestart: the first client after a crash has a slow clock, and the server's
// clock is set forward by as much. Both agree that MaxTTL has passed.
func TestTwoWrongClocksAfterARestart(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the first client after a crash has a slow clock, and the server's clock is then set forward by as much", verdict.Guarded)
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), short).Init(t.Context()))
	pg.Crash(t)
	if wait := register(t, pg, "1 hour"); wait == "0" {
		t.Error("after a crash, the server is open")
	}
	pg.Exec(t, "UPDATE fencelock.start SET since = since - interval '1 hour'") // the same as a clock that is set
	if wait := register(t, pg, "0"); wait != "0" {
		t.Errorf("the server is closed for %s ms; the page says that it opens early", wait)
	}
}

// TestFastClockAfterARestart: the first client after a restart has a fast clock. Another one waits
// for MaxTTL, and nobody else waits as long once more.
func TestFastClockAfterARestart(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), short).Init(t.Context()))
	pg.Crash(t)
	register(t, pg, "-1 hour")
	if wait := register(t, pg, "0"); wait == "0" {
		t.Error("after a crash, the server is open")
	}
	e := engine(t, pg.DSN(), short)
	release(t, e, regained(t, e, shortRequest("a")))
	eventually(t, "the server is open", func() bool { return register(t, pg, "0") == "0" })
}

// register registers a session of a client whose clock is behind. It returns for how many
// milliseconds the server is closed for it.
func register(t *testing.T, pg *pgtest.Postgres, behind string) (wait string) {
	t.Helper()
	_, wait, _ = strings.Cut(pg.Query(t, "SELECT fencelock.register(5000, (extract(epoch FROM now() - interval '"+behind+"') * 1000000)::bigint)"), "|")
	return wait
}

// TestMaxTTLBeyondTheServers: PostgreSQL has no such timeouts. Every request is refused at once.
func TestMaxTTLBeyondTheServers(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	for _, cfg := range []*pglock.Config{{MaxTTL: 2147483648 * time.Millisecond}, {Timeout: 2147483648 * time.Millisecond}} {
		e := engine(t, pg.DSN(), cfg)
		_, errAcquire := e.Acquire(t.Context(), request("a"))
		for _, err := range []error{errAcquire, e.Init(t.Context()), e.Ping(t.Context())} {
			if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "MaxTTL") {
				t.Errorf("%v: %v", cfg, err)
			}
		}
	}
	most := request("a")
	most.TTL = 2147483647 * time.Millisecond
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: most.TTL})
	release(t, e, try(t, e, most))
	judged(t, inspect(t, pg.DSN(), nil, 5*time.Second), "restart wait", driver.Warning, "596h31m23.647s")
}

// TestPoolerLeavesNoSetting: a pooler in transaction mode that was allowed is refused before anything
// is set on a connection that the application uses too.
func TestPoolerLeavesNoSetting(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	for _, settings := range [][]string{nil, {"default_pool_size=1"}, {"server_round_robin=1", "min_pool_size=3"}} {
		bouncer := pgtest.StartPgBouncer(t, pg, "transaction", settings...)
		var app []*pgx.Conn
		for range 3 {
			conn, err := pgx.Connect(t.Context(), bouncer.DSN()+"&default_query_exec_mode=simple_protocol")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			app = append(app, conn)
		}
		_, err := engine(t, bouncer.DSN(), &pglock.Config{AllowPooler: true}).Acquire(t.Context(), request("a"))
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "session pooling") {
			t.Errorf("%v: a pooler in transaction mode: %v", settings, err)
		}
		for _, conn := range app {
			var path, commit, timeout string
			err := conn.QueryRow(t.Context(), "SELECT current_setting('search_path'), current_setting('synchronous_commit'), current_setting('lock_timeout')").Scan(&path, &commit, &timeout)
			if err != nil || path != `"$user", public` || commit != "on" || timeout != "0" {
				t.Errorf("%v: the application's connection has search_path %s, synchronous_commit %s, lock_timeout %s, %v", settings, path, commit, timeout, err)
			}
		}
		if got := pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'"); got != "0" {
			t.Errorf("%v: %s advisory locks are left", settings, got)
		}
		bouncer.Stop(t)
	}
}

// TestPoolerWithoutAConnection: each session needs one of the pooler's, and the error says so.
func TestPoolerWithoutAConnection(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	for _, settings := range [][]string{{"default_pool_size=1"}, {"default_pool_size=1", "query_wait_timeout=1"}} {
		bouncer := pgtest.StartPgBouncer(t, pg, "session", settings...)
		_, err := engine(t, bouncer.DSN(), &pglock.Config{AllowPooler: true}).Acquire(t.Context(), request("a"))
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the pooler gives no connection") {
			t.Errorf("%v: %v", settings, err)
		}
		bouncer.Stop(t)
	}
}

// TestRestartWithoutItsStandby: while the synchronous standby is down, a restart costs MaxTTL and no
// more.
func TestRestartWithoutItsStandby(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), short)
	release(t, e, try(t, e, shortRequest("a")))
	must(t, e.Close())
	pg.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'away'")
	pg.Restart(t)
	e = engine(t, pg.DSN(), short)
	pg.Query(t, "SELECT fencelock.register(5000, (extract(epoch FROM now()) * 1000000)::bigint)") // which does not hang
	release(t, e, regained(t, e, shortRequest("a")))
}
