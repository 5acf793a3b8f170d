//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// hourly asks for so many of a key's burst of four, an hour each.
func hourly(key string, n int) driver.RateTake {
	return driver.RateTake{Key: key, Cost: time.Duration(n) * time.Hour, Most: 4 * time.Hour}
}

// taking takes from a rate, or fails the test.
func taking(t *testing.T, e *pglock.Engine, take driver.RateTake) driver.RateTaken {
	t.Helper()
	taken, err := e.TakeRate(t.Context(), take)
	if err != nil {
		t.Fatalf("taking %v of %q: %v", take.Cost, take.Key, err)
	}
	return taken
}

// TestRateFunctions: whatever is taken and given back, by a clock that steps, the functions
// answer and keep what package gcra does.
func TestRateFunctions(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `CREATE OR REPLACE FUNCTION fencelock.micros() RETURNS bigint LANGUAGE sql AS $$ SELECT current_setting('test.now')::bigint $$`)
	conn := pg.Connect(t)
	query := func(t *rapid.T, sql string, args ...any) (text string) {
		if err := conn.QueryRow(context.Background(), sql, args...).Scan(&text); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return text
	}
	sequence := 0
	rapid.Check(t, func(t *rapid.T) {
		sequence++
		key := fmt.Sprint("k", sequence)
		unit := rapid.SampledFrom([]int64{1, 1000, 3_600_000_000, 7_000_000_000_000}).Draw(t, "unit")
		var model gcra.State
		now, end, last := int64(1_700_000_000_000_007), int64(0), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += rapid.Int64Range(-3, 5).Draw(t, "pause") * unit / 2
			query(t, "SELECT set_config('test.now', $1, false)", fmt.Sprint(now))
			if rapid.IntRange(0, 3).Draw(t, "give back") == 0 && last > 0 {
				model.Return(last, end)
				query(t, "SELECT fencelock.return_rate($1, $2, $3)::text", key, last, end)
				continue
			}
			cost := rapid.Int64Range(1, 4).Draw(t, "cost") * unit
			ahead, ok := model.Take(now, cost, 4*unit)
			if ok {
				end, last = now+ahead, cost
			}
			want := fmt.Sprintf("%s|%d|%d", map[bool]string{true: "t", false: "f"}[ok], now, ahead)
			if got := query(t, "SELECT fencelock.take_rate($1, $2, $3)", key, cost, 4*unit); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
		left := query(t, "SELECT last || ' ' || ahead FROM fencelock.rate WHERE key = $1", key)
		if want := fmt.Sprintf("%d %d", model.Last, model.Ahead); left != want && model != (gcra.State{}) {
			t.Fatalf("the server keeps %s, want %s", left, want)
		}
	})
}

// TestRateSweep: rows of idle keys are removed by those who take, a thousand at most at a
// time, and no others.
func TestRateSweep(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	first := taking(t, e, hourly("busy|1", 4))
	pg.Exec(t, `INSERT INTO fencelock.rate SELECT 'idle|' || n, fencelock.micros() - 10, 5 FROM generate_series(1, 2500) n`)
	count := func() (n int) {
		t.Helper()
		if _, err := fmt.Sscan(pg.Query(t, "SELECT count(*) FROM fencelock.rate WHERE key LIKE 'idle|%'"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if next := pg.Query(t, "SELECT fencelock.sweep_rates('')"); next == "" || count() < 1500 || count() > 1501 {
		t.Errorf("of 2500 idle keys %d were left by the first sweep, which ended at %q", count(), next)
	}
	eventually(t, "the idle keys are gone", func() bool {
		for range 100 {
			taking(t, e, driver.RateTake{Key: "taker", Cost: time.Microsecond, Most: time.Hour})
		}
		return count() == 0
	})
	if taken := taking(t, e, hourly("busy|1", 1)); taken.OK || !taken.Now.Add(taken.Ahead).Equal(first.Now.Add(4*time.Hour)) {
		t.Errorf("a key in use after a sweep: %+v", taken)
	}
}

// TestRatesInAnOlderSchema: a schema without the table goes on granting locks to a role that
// may not change it; rates are there once somebody who may has completed it.
func TestRatesInAnOlderSchema(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	admin := engine(t, pg.DSN(), nil)
	if err := admin.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE app LOGIN", "DROP TABLE fencelock.rate CASCADE", "DROP FUNCTION fencelock.take_rate(text, bigint, bigint)")
	e := engine(t, pg.As("app"), nil)
	l := try(t, e, request("a"))
	if _, err := e.TakeRate(t.Context(), hourly("a", 1)); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("rates of a schema that has none, and a role that may not make them: got %v, want ErrConfig", err)
	}
	if err := renew(e, l); err != nil {
		t.Errorf("the lock of before: %v", err)
	}
	first := taking(t, admin, hourly("a", 3))
	if taken := taking(t, e, hourly("a", 1)); !taken.OK || !taken.Now.Add(taken.Ahead).Equal(first.Now.Add(4*time.Hour)) {
		t.Errorf("the role, once the table is there: %+v", taken)
	}
	release(t, e, l)
}

// TestRatesAfterACrash: each key has its burst anew, and the engine goes on by itself.
func TestRatesAfterACrash(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	taking(t, e, hourly("a", 4))
	pg.Kill(t)
	pg.Restart(t)
	eventually(t, "the engine has found the server again", func() bool {
		taken, err := e.TakeRate(t.Context(), hourly("a", 4))
		if err == nil && !taken.OK {
			t.Fatal("the crash forgot nothing")
		}
		return err == nil
	})
	taking(t, e, hourly("b", 1))
}
