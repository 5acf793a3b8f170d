//go:build unix

package pglock_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// brief is a configuration whose quarantine is over within a second.
var brief = &pglock.Config{MaxTTL: time.Second}

// quick is a request that fits it.
func quick(name string) driver.Request {
	req := request(name)
	req.TTL = time.Second
	return req
}

// TestTwoPromotionsAndARestore: at each of them the tail of the tokens gets lost, and what comes
// after is greater all the same.
func TestTwoPromotionsAndARestore(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a standby is promoted and the old primary is off", verdict.Safe)
	pg := pgtest.StartPostgres(t, lazyDisk...)
	last := spend(t, engine(t, pg.DSN(), brief), quick("a"), 50)
	for range 2 {
		sb := pg.Standby(t)
		sb.CatchUp(t, pg)
		sb.Cut(t)
		last = spend(t, engine(t, pg.DSN(), brief), quick("a"), 200)
		pg.Stop(t)
		sb.Promote(t)
		e := engine(t, sb.DSN(), brief)
		l := regained(t, e, quick("a"))
		if l.Token-last.Token < leap {
			t.Errorf("a promoted standby gave token %d after %d", l.Token, last.Token)
		}
		letGo(t, e, l)
		pg = sb
	}
	restored := pg.Restored(t)
	last = spend(t, engine(t, pg.DSN(), brief), quick("a"), 200)
	e := engine(t, restored.DSN(), brief)
	l := regained(t, e, quick("a"))
	if l.Token-last.Token < leap {
		t.Errorf("a restored cluster gave token %d after %d", l.Token, last.Token)
	}
	letGo(t, e, l)
	// And back to the one that was left.
	if l := regained(t, engine(t, pg.DSN(), brief), quick("a")); l.Token <= last.Token {
		t.Errorf("the cluster of before gave token %d after %d", l.Token, last.Token)
	}
}

// TestArchiveRestored: pg_restore puts an archive back into the cluster it is from, over
// what is there. The whole of it goes on with greater tokens; the schema alone is refused.
func TestArchiveRestored(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a dump, an archive or a cold backup is restored", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), brief)
	spend(t, e, quick("a"), 10)
	archive := filepath.Join(t.TempDir(), "archive")
	if out, err := pg.Command(t, "pg_dump", "-Fc", "-n", "fencelock", "-f", archive).CombinedOutput(); err != nil {
		t.Fatalf("pg_dump: %v: %s", err, out)
	}
	last := spend(t, e, quick("a"), 100)
	for _, only := range []string{"--verbose", "--schema-only"} {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if out, err := pg.Command(t, "pg_restore", "--clean", "--if-exists", "-1", only, "-d", "postgres", archive).CombinedOutput(); err != nil {
			t.Fatalf("pg_restore: %v: %s", err, out)
		}
		e = engine(t, pg.DSN(), brief)
		if only == "--schema-only" {
			if g, err := e.Acquire(t.Context(), quick("a")); !errors.Is(err, driver.ErrConfig) {
				t.Errorf("a schema without data gave token %d, %v", g.Token, err)
			}
			return
		}
		l := regained(t, e, quick("a"))
		if l.Token-last.Token < leap {
			t.Errorf("after the restore token %d came after %d", l.Token, last.Token)
		}
		letGo(t, e, l)
		last = l
	}
}

// TestColdBackupPutBack: the files of a server that was shut down are put back later. It
// starts as after an orderly stop, and knows nothing of the tokens since.
func TestColdBackupPutBack(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a dump, an archive or a cold backup is restored", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	last := spend(t, engine(t, pg.DSN(), brief), quick("a"), 10)
	pg.Stop(t)
	data := filepath.Join(pg.Dir(), "data")
	if out, err := exec.Command("cp", "-a", data, data+".cold").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pg.Restart(t)
	e := engine(t, pg.DSN(), brief)
	l := regained(t, e, quick("a"))
	letGo(t, e, l)
	last = spend(t, e, quick("a"), 100)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	pg.Stop(t)
	if err := errors.Join(os.Rename(data, data+".lost"), os.Rename(data+".cold", data)); err != nil {
		t.Fatal(err)
	}
	pg.Restart(t)
	if l := regained(t, engine(t, pg.DSN(), brief), quick("a")); l.Token <= last.Token {
		t.Errorf("after a cold backup was put back, token %d came after %d", l.Token, last.Token)
	}
}
