//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/ratetest"
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

// TestRateFunctions: the functions do what package gcra does.
func TestRateFunctions(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `CREATE OR REPLACE FUNCTION fencelock.micros() RETURNS bigint LANGUAGE sql AS $$ SELECT current_setting('test.now')::bigint $$`)
	ratetest.Check(t, rateFunctions{pg.Connect(t)})
}

// rateFunctions are the functions, by a clock that is a setting.
type rateFunctions struct{ conn *pgx.Conn }

// query returns the text that a query answers at a time.
func (f rateFunctions) query(now int64, sql string, args ...any) (text string, err error) {
	if _, err = f.conn.Exec(context.Background(), "SELECT set_config('test.now', $1, false)", fmt.Sprint(now)); err == nil {
		err = f.conn.QueryRow(context.Background(), sql, args...).Scan(&text)
	}
	return text, err
}

func (f rateFunctions) Take(key string, now, cost, most, each int64) (got, ahead int64, err error) {
	text, err := f.query(now, "SELECT fencelock.take_rate($1, $2, $3, $4)", key, cost, most, each)
	if err != nil {
		return 0, 0, err
	}
	at := int64(0)
	_, err = fmt.Sscanf(text, "%d|%d|%d", &got, &at, &ahead)
	if err == nil && at != now {
		err = fmt.Errorf("%q at %d", text, now)
	}
	return got, ahead, err
}

func (f rateFunctions) Return(key string, now, cost int64, left gcra.State) error {
	_, err := f.query(now, "SELECT fencelock.return_rate($1, $2, $3, $4)::text", key, cost, left.Last, left.Ahead)
	return err
}

func (f rateFunctions) Reset(key string, now int64) error {
	_, err := f.query(now, "SELECT fencelock.reset_rate($1)::text", key)
	return err
}

func (f rateFunctions) Kept(key string) (s gcra.State, err error) {
	err = f.conn.QueryRow(context.Background(), "SELECT last, ahead FROM fencelock.rate WHERE key = $1", key).Scan(&s.Last, &s.Ahead)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, err
}

// TestRateSweep: rows of idle keys are removed by those who take, a thousand at most at a
// time, and no others.
func TestRateSweep(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
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
