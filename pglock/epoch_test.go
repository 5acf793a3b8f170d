//go:build unix

package pglock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// lazyDisk are settings of a server that loses what nobody insisted on when it
// crashes: all of a few seconds.
var lazyDisk = []string{"synchronous_commit=off", "wal_writer_delay=10s"}

// loseTail makes sure that the server loses something when it crashes next: nobody writes down
// what is not insisted on. The setting lasts for some seconds only.
func loseTail(t testing.TB, pg *pgtest.Postgres) {
	t.Helper()
	pg.FreezeBackend(t, uint32(number(t, pg, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")))
}

// guard is a resource that refuses tokens smaller than one it has seen.
type guard struct{ stored int64 }

func (g *guard) write(token int64) bool {
	if token < g.stored {
		return false
	}
	g.stored = token
	return true
}

// leap is how far tokens go on at least when something may have set them back.
const leap = 1 << 32

// number reads a number with a query.
func number(t testing.TB, pg *pgtest.Postgres, sql string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(pg.Query(t, sql), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// spend takes and releases a lock n times, and returns the last lease.
func spend(t testing.TB, e driver.Engine, req driver.Request, n int) (last driver.Lease) {
	t.Helper()
	for range n {
		last = regained(t, e, req)
		letGo(t, e, last)
	}
	return last
}

// regained waits for a lock, as after the server came back.
func regained(t testing.TB, e driver.Engine, req driver.Request) driver.Lease {
	t.Helper()
	req.Wait = true
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return leaseOf(req, g)
}

// TestCrashLosesTheTailOfTheSequence: the server crashes, twice in a row, before it
// has written down the tokens that it gave out. It counts them again from where it
// was, in a later epoch; an old holder that goes on writing is shut out.
func TestCrashLosesTheTailOfTheSequence(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, append(lazyDisk, "bgwriter_lru_maxpages=0")...)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Second})
	req := request("a")
	req.TTL = time.Second
	var resource guard
	for range 2 {
		spend(t, e, req, 1)
		loseTail(t, pg)
		spend(t, e, req, 200)
		old := regained(t, e, req)
		last := number(t, pg, "SELECT last_value FROM fencelock.token")
		pg.Kill(t)
		pg.Restart(t)
		if lost := last - number(t, pg, "SELECT last_value FROM fencelock.token"); lost <= 0 {
			t.Errorf("the crash lost %d numbers of the sequence; the test wants some lost", lost)
		}
		if !resource.write(old.Token) {
			t.Error("the guard refuses the old holder before it has heard of a new one")
		}
		l := regained(t, e, req)
		if l.Token-old.Token < leap {
			t.Errorf("after the crash token %d came after %d, want a later epoch", l.Token, old.Token)
		}
		if !resource.write(l.Token) || resource.write(old.Token) {
			t.Error("the guard lets the wrong one write")
		}
		letGo(t, e, l)
	}
}

// TestCrashBeforeTheEpochIsWritten: the server crashes, twice in a row, while the
// first session after a crash begins a new epoch. Nobody had a token of that one.
func TestCrashBeforeTheEpochIsWritten(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Second})
	req := request("a")
	req.TTL = time.Second
	last := spend(t, e, req, 100)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pg.Kill(t)
		pg.Restart(t)
		tx, err := pg.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var epoch int64
		if err := tx.QueryRow(t.Context(), "SELECT last_value FROM fencelock.token, fencelock.register(1000, 1000)").Scan(&epoch); err != nil || epoch < last.Token {
			t.Errorf("epoch %d after token %d: %v", epoch, last.Token, err)
		}
		// It does not come to the commit.
	}
	pg.Kill(t)
	pg.Restart(t)
	if l := regained(t, engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Second}), req); l.Token-last.Token < leap {
		t.Errorf("token %d after %d, want a later epoch", l.Token, last.Token)
	}
}

// TestPromotedStandbyThatLacksEpochs: the primary crashed and began epochs that the
// standby never received.
func TestPromotedStandbyThatLacksEpochs(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	cfg := &pglock.Config{MaxTTL: time.Second}
	e := engine(t, pg.DSN(), cfg)
	req := request("a")
	req.TTL = time.Second
	spend(t, e, req, 100)
	sb := pg.Standby(t)
	sb.CatchUp(t, pg)
	sb.Cut(t)
	var last driver.Lease
	for range 2 {
		pg.Kill(t)
		pg.Restart(t)
		last = spend(t, e, req, 1)
	}
	pg.Stop(t)
	sb.Promote(t)
	if l := regained(t, engine(t, sb.DSN(), cfg), req); l.Token-last.Token < leap {
		t.Errorf("the promoted standby gave token %d after %d", l.Token, last.Token)
	}
}

// TestDumpRestoredInPlace: a dump that is put back into the cluster it is from sets
// the sequence back there.
func TestDumpRestoredInPlace(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a dump, an archive or a cold backup is restored", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	cfg := &pglock.Config{MaxTTL: time.Second}
	e := engine(t, pg.DSN(), cfg)
	req := request("a")
	req.TTL = time.Second
	spend(t, e, req, 10)
	dump, err := pg.Command(t, "pg_dump", "-n", "fencelock", "-d", "postgres").Output()
	if err != nil {
		t.Fatal(err)
	}
	last := spend(t, e, req, 100)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "DROP SCHEMA fencelock CASCADE")
	psql := pg.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
	psql.Stdin = strings.NewReader(string(dump))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if l := regained(t, engine(t, pg.DSN(), cfg), req); l.Token-last.Token < leap {
		t.Errorf("after the restore token %d came after %d", l.Token, last.Token)
	}
}

// TestDatabaseReplacedByACopy: a copy of the database, which takes its place, knows nothing of
// what was granted since it was made.
func TestDatabaseReplacedByACopy(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartCluster(t)
	pg.Exec(t, "CREATE DATABASE app")
	dsn, cfg := strings.Replace(pg.DSN(), "/postgres?", "/app?", 1), &pglock.Config{MaxTTL: time.Second}
	req := request("a")
	req.TTL = time.Second
	e := engine(t, dsn, cfg)
	spend(t, e, req, 10)
	unused := func() {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nobody is connected", func() bool {
			return pg.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'app'") == "0"
		})
	}
	unused()
	pg.Exec(t, "CREATE DATABASE copy TEMPLATE app")
	e = engine(t, dsn, cfg)
	last := spend(t, e, req, 100)
	unused()
	pg.Exec(t, "DROP DATABASE app", "ALTER DATABASE copy RENAME TO app")
	if l := regained(t, engine(t, dsn, cfg), req); l.Token-last.Token < leap {
		t.Errorf("in the copy token %d came after %d", l.Token, last.Token)
	}
}

// TestDataRestoredIntoTables: the rows of a dump are put into the tables of the same server, which
// cannot tell, and tokens are issued a second time.
func TestDataRestoredIntoTables(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), brief)
	spend(t, e, quick("a"), 10)
	dump, err := pg.Command(t, "pg_dump", "--data-only", "-n", "fencelock", "-d", "postgres").Output()
	if err != nil {
		t.Fatal(err)
	}
	last := spend(t, e, quick("a"), 100)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	psql := pg.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
	psql.Stdin = strings.NewReader(`SELECT format('TRUNCATE %I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'fencelock' \gexec` + "\n" + string(dump))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	next := regained(t, engine(t, pg.DSN(), brief), quick("a"))
	verdict.Is(t, "PostgreSQL: only the data is restored, into existing tables",
		verdict.Unsafe, verdict.OfHolders(nil, last.Token, next.Token))
}
