//go:build unix

package pglock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestRecordsAreTheirOwners: a role that can connect uses the locks, and neither reads nor
// writes the records before their owner grants it that. The error says how.
func TestRecordsAreTheirOwners(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if _, err := engine(t, pg.DSN(), nil).Records().Swap(t.Context(), "a", []byte("secret"), "", 0); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE app LOGIN")
	e := engine(t, pg.As("app"), nil)
	r := e.Records()
	_, errGet := r.Get(t.Context(), "a")
	_, errList := r.List(t.Context(), "")
	_, errSwap := r.Swap(t.Context(), "b", nil, "", 0)
	for _, err := range []error{errGet, errList, errSwap} {
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record") {
			t.Errorf("a role that was granted nothing: got %v, want ErrConfig", err)
		}
	}
	release(t, e, try(t, e, request("a")))
	taking(t, e, hourly("a", 1))
	pg.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record TO app")
	if rec, err := r.Get(t.Context(), "a"); err != nil || string(rec.Value) != "secret" {
		t.Errorf("once it is granted: %+v, %v", rec, err)
	}
	if _, err := r.Swap(t.Context(), "b", nil, "", 0); err != nil {
		t.Errorf("once it is granted: %v", err)
	}
}

// TestSwapWhoseAnswerIsLost: it is made again, and is carried out once; others see one version
// of it, and none that has expired again.
func TestSwapWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	proxy, dsn := throughProxy(t, pg)
	mine, others := engine(t, dsn, nil).Records(), engine(t, pg.DSN(), nil).Records()
	first, err := mine.Swap(t.Context(), "a", []byte("one"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key, version string
		expires      bool
	}{{"a", first, false}, {"b", "", false}, {"c", "", true}} {
		cut := proxy.SwallowReply("fencelock.durable")
		var seen driver.Record
		remove := proxy.OnRequest("fencelock.durable", func() {
			select {
			case <-cut:
			default:
				return // the first try
			}
			if seen, err = others.Get(t.Context(), c.key); err != nil {
				t.Error(err)
			}
			if c.expires {
				pg.Exec(t, "UPDATE fencelock.record SET expires = now() - interval '1 s' WHERE key = 'c'")
			}
		})
		version, err := mine.Swap(t.Context(), c.key, []byte("two"), c.version, time.Hour)
		remove()
		if err != nil || seen.Version == "" || c.expires == (seen.Version == version) {
			t.Errorf("%q, %v; after the first try it was %q", version, err, seen.Version)
		}
		if rec, err := others.Get(t.Context(), c.key); err != nil || rec.Version != version || string(rec.Value) != "two" {
			t.Errorf("the record is %+v, %v, want version %q", rec, err, version)
		}
	}
}

// TestSwapThatIsRefusedAfterItsAnswerWasLost: the first try was carried out, so what refuses
// the second one is no error of a swap that has changed nothing.
func TestSwapThatIsRefusedAfterItsAnswerWasLost(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE app LOGIN")
	proxy, _ := throughProxy(t, pg)
	dsn := strings.Replace(pg.As("app"), fmt.Sprint("127.0.0.1:", pg.Port()), proxy.Addr(), 1)
	r := engine(t, dsn, nil).Records()
	for i := range 10 {
		pg.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record TO app")
		cut := proxy.SwallowReply("fencelock.durable")
		remove := proxy.OnRequest("fencelock.durable", func() {
			select {
			case <-cut:
				pg.Exec(t, "REVOKE ALL ON fencelock.record FROM app")
			default: // the first try
			}
		})
		key := fmt.Sprint("a", i)
		_, err := r.Swap(t.Context(), key, nil, "", 0)
		remove()
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if pg.Query(t, "SELECT count(*) FROM fencelock.record WHERE key = $1", key) == "1" {
			return
		} // a server that is slow may notice the cut before it has carried out the first try
	}
	t.Error("no first try was carried out")
}

// TestSwapWithoutItsStandby: a swap waits for the standby that a commit must have; without
// it nobody knows of it, and it is no conflict.
func TestSwapWithoutItsStandby(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	r := engine(t, pg.DSN(), nil).Records()
	version, err := r.Swap(t.Context(), "a", nil, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer standbyAway(t, pg)()
	for _, key := range []string{"a", "b"} {
		var err error
		for limit := time.Second; ; limit *= 2 {
			_, err = r.Swap(soon(t, limit), key, []byte("value"), map[string]string{"a": version}[key], 0)
			if err == nil || errors.Is(err, driver.ErrUnavailable) || limit > patience {
				break
			} // its context had ended before it began
		}
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
			t.Errorf("a swap of %q that no standby has: got %v, want ErrUnavailable", key, err)
		}
	}
}

// TestListOfManyRecords: they come some at a time, each once and in the order of the bytes,
// and swaps are made in between.
func TestListOfManyRecords(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	proxy, dsn := throughProxy(t, pg)
	r, others := engine(t, dsn, nil).Records(), engine(t, pg.DSN(), nil).Records()
	version, err := others.Swap(t.Context(), "kept", nil, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `INSERT INTO fencelock.record SELECT k || i, i, '', NULL FROM generate_series(1, 130) i, unnest(ARRAY['ä', 'Z', 'a', 'a%']) k`)
	pages := 0
	defer proxy.OnRequest("starts_with", func() {
		pages++
		if version, err = others.Swap(t.Context(), "kept", nil, version, 0); err != nil {
			t.Error(err)
		}
	})()
	for prefix, want := range map[string]int{"": 521, "a": 260, "a%": 130, "ä": 130, "kept": 1, "none": 0} {
		pages = 0
		list, err := r.List(t.Context(), prefix)
		sorted := slices.IsSortedFunc(list, func(a, b driver.Record) int { return strings.Compare(a.Key, b.Key) })
		once := len(slices.CompactFunc(slices.Clone(list), func(a, b driver.Record) bool { return a.Key == b.Key })) == len(list)
		if err != nil || len(list) != want || !sorted || !once || pages <= want/101 {
			t.Errorf("%q: %d records in %d pages, %v, in order %v, once %v; want %d", prefix, len(list), pages, err, sorted, once, want)
		}
	}
}

// TestExpiredRecordsAreSwept: rows that expired some time ago go, and no others.
func TestExpiredRecordsAreSwept(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	if _, err := engine(t, pg.DSN(), nil).Records().Swap(t.Context(), "kept", nil, "", time.Hour); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `INSERT INTO fencelock.record SELECT 'old ' || i, '', '', now() - interval '2 minutes' FROM generate_series(1, 500) i`,
		`INSERT INTO fencelock.record VALUES ('just expired', '', '', now()), ('for ever', '', '', NULL)`)
	if _, err := engine(t, pg.DSN(), nil).Records().Swap(t.Context(), "new", nil, "", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what has expired is gone", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.record") == "4" })
}

// dropSchema drops the schema, again if a sweep meets it and the server ends the deadlock.
func dropSchema(t *testing.T, pg *pgtest.Postgres) {
	t.Helper()
	conn := pg.Connect(t)
	for {
		_, err := conn.Exec(t.Context(), "DROP SCHEMA fencelock CASCADE")
		if err == nil {
			return
		}
		if why, ok := errors.AsType[*pgconn.PgError](err); !ok || why.Code != "40P01" {
			t.Fatal(err)
		}
	}
}

// TestTablesAreMadeAnew: records and rates whose schema was dropped have it again with the next
// request. Where a table alone is gone a person must mend it.
func TestTablesAreMadeAnew(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	r := e.Records()
	for range 2 {
		if _, err := r.Swap(t.Context(), "a", []byte("value"), "", time.Hour); err != nil {
			t.Errorf("a record of a new schema: %v", err)
		}
		if taken, err := e.TakeRate(t.Context(), hourly("a", 4)); err != nil || !taken.OK {
			t.Errorf("a rate of a new schema: %v, %v", taken, err)
		}
		dropSchema(t, pg)
	}
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "DROP TABLE fencelock.record")
	if _, err := r.Get(t.Context(), "a"); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a schema without its table: %v, want ErrConfig", err)
	}
}

// TestRowLocks: somebody's locks on the rows of some records and rates hold up those alone.
func TestRowLocks(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	r := e.Records()
	version, err := r.Swap(t.Context(), "a", []byte("value"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	taking(t, e, hourly("a", 1))
	tx, err := pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT FROM fencelock.record, fencelock.rate FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	var stuck sync.WaitGroup
	var swapped atomic.Int64
	for range 20 {
		stuck.Go(func() { // ends when the rows are free
			if _, err := r.Swap(t.Context(), "a", []byte("next"), version, 0); err == nil {
				swapped.Add(1)
			} else if !errors.Is(err, driver.ErrConflict) {
				t.Error(err)
			}
		})
		stuck.Go(func() { // ends when the rows are free
			if _, err := e.TakeRate(t.Context(), hourly("a", 1)); err != nil {
				t.Error(err)
			}
		})
	}
	var took []time.Duration
	for i := range 40 {
		begun := time.Now()
		key := fmt.Sprint("b", i)
		_, errA := r.Get(t.Context(), "a")
		_, errB := r.Swap(t.Context(), key, []byte("value"), "", 0)
		_, errC := e.TakeRate(t.Context(), hourly(key, 1))
		if err := errors.Join(errA, errB, errC); err != nil {
			t.Error(err)
		}
		took = append(took, time.Since(begun)/3)
		time.Sleep(40 * time.Millisecond)
	}
	if m := median(took); m > 50*time.Millisecond {
		t.Errorf("other keys wait for %v", m)
	}
	t.Logf("other keys: median %v, longest %v", median(took), slices.Max(took))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	stuck.Wait()
	if n := swapped.Load(); n != 1 {
		t.Errorf("%d swaps of one version", n)
	}
}

// TestSweepOfManyRecords: the sweep keeps up with any number of records that expire.
func TestSweepOfManyRecords(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	must(t, e.Init(t.Context()))
	pg.Exec(t, "INSERT INTO fencelock.record SELECT 'k' || n, 'v', '', now() - interval '1 hour' FROM generate_series(1, 5000) n")
	_, err := e.Records().Swap(t.Context(), "mine", nil, "", 0)
	must(t, err)
	eventually(t, "the records that expired are gone", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.record") == "1" })
}
