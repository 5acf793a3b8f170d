//go:build linux

package pglock_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// steps are what happens to the server's clock while no holder renews. The way back
// is short, since it keeps the session of a frozen holder for as much longer.
var steps = map[string]time.Duration{"forward": time.Hour, "back": -3 * time.Second}

// TestClockStepsWhileAHolderIsFrozen: neither one who waits nor processes that try get in before
// its lease is over, by a clock that nobody has set. All get in.
func TestClockStepsWhileAHolderIsFrozen(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the server's clock is set forward", verdict.Safe)
	verdict.Is(t, "PostgreSQL: the server's clock is set back", verdict.Safe)
	for name, step := range steps {
		for _, waits := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				clock := hosttest.NewClock(t)
				pg := pgtest.StartPostgresBy(t, clock)
				p := proc.Start(t, "postgres", pg.DSN())
				req := request("a")
				req.TTL = 2 * time.Second
				sent := time.Now()
				l := try(t, p, req)
				p.Freeze(t)
				clock.Set(step)
				n := getsIn(t, pg.DSN(), req, waits)
				if early := req.TTL - time.Since(sent); early > 0 {
					t.Errorf("somebody got in %v before the lease was over", early)
				}
				if n.Token <= l.Token {
					t.Errorf("token %d after %d", n.Token, l.Token)
				}
			})
		}
	}
}

// getsIn waits for a lock, or tries until it has it: each time as a new process, which knows
// nothing of the last one.
func getsIn(t testing.TB, dsn string, req driver.Request, waits bool) (l driver.Lease) {
	t.Helper()
	cfg := &pglock.Config{MaxTTL: req.TTL}
	if waits {
		return regained(t, engine(t, dsn, cfg), req)
	}
	eventually(t, "a try succeeds", func() bool {
		e := engine(t, dsn, cfg)
		g, err := e.Acquire(t.Context(), req)
		if err != nil {
			_ = e.Close()                      // the next one is another process
			time.Sleep(100 * time.Millisecond) // each costs the server three of its own
		}
		l = leaseOf(req, g)
		return err == nil
	})
	return l
}

// TestClockStepsAfterACrash: the server has forgotten who holds, and its clock is set while it
// grants nothing. Nobody gets in before the longest lease is over, and tokens go on.
func TestClockStepsAfterACrash(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the server's clock is set forward", verdict.Safe)
	verdict.Is(t, "PostgreSQL: the server's clock is set back", verdict.Safe)
	for name, step := range steps {
		for _, waits := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				clock := hosttest.NewClock(t)
				pg := pgtest.StartPostgresBy(t, clock)
				req := request("a")
				req.TTL = 2 * time.Second
				cfg := &pglock.Config{MaxTTL: req.TTL}
				e := engine(t, pg.DSN(), cfg)
				l := try(t, e, req)
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				sent := time.Now() // by one whom the server has forgotten
				pg.Kill(t)
				pg.Restart(t)
				first := engine(t, pg.DSN(), cfg)
				if _, err := first.Acquire(t.Context(), req); err == nil && time.Since(sent) < req.TTL {
					t.Error("granted at once after a crash")
				}
				clock.Set(step)
				n := getsIn(t, pg.DSN(), req, waits)
				if early := req.TTL - time.Since(sent); early > 0 {
					t.Errorf("somebody got in %v before the longest lease was over", early)
				}
				if n.Token <= l.Token {
					t.Errorf("token %d after %d", n.Token, l.Token)
				}
			})
		}
	}
}

// TestClockSetBackBeforeARestore: a dump that is put back leaves room for the tokens of the time since,
// also when the clock of the server cannot tell how much time that was.
func TestClockSetBackBeforeARestore(t *testing.T) {
	t.Parallel()
	clock := hosttest.NewClock(t)
	pg := pgtest.StartPostgresBy(t, clock)
	e := engine(t, pg.DSN(), brief)
	last := spend(t, e, quick("a"), 1)
	dump, err := pg.Command(t, "pg_dump", "-n", "fencelock").Output()
	must(t, err, e.Close())
	pg.Exec(t, "DROP SCHEMA fencelock CASCADE")
	clock.Set(-24 * time.Hour)
	psql := pg.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1")
	psql.Stdin = bytes.NewReader(dump)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const room = 64 << 30 // 64 s of tokens
	if l := regained(t, engine(t, pg.DSN(), brief), quick("a")); l.Token-last.Token < room {
		t.Errorf("after the restore token %d came after %d, %d further; want %d", l.Token, last.Token, l.Token-last.Token, room)
	}
}

// TestClockSetBackBeforeARestart: tokens go on from the last one although the clock of the server
// says an earlier time at each of its starts.
func TestClockSetBackBeforeARestart(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the server's clock is set back", verdict.Safe)
	clock := hosttest.NewClock(t)
	pg := pgtest.StartPostgresBy(t, clock, lazyDisk...)
	last := spend(t, engine(t, pg.DSN(), brief), quick("a"), 10)
	for i, stop := range []func(hosttest.TB){pg.Kill, pg.Stop} {
		stop(t)
		clock.Set(-time.Duration(i+1) * 24 * time.Hour)
		pg.Restart(t)
		e := engine(t, pg.DSN(), brief)
		l := regained(t, e, quick("a"))
		if l.Token <= last.Token {
			t.Errorf("token %d after %d", l.Token, last.Token)
		}
		letGo(t, e, l)
		last = spend(t, e, quick("a"), 10)
	}
}
