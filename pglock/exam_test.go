//go:build unix

package pglock_test

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// maxTTL is the deployment's longest lease, which is how long a server that
// started anew grants nothing.
const maxTTL = 10 * time.Second

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{
		"postgres": func(dsn string) driver.Engine { return open(dsn, &pglock.Config{MaxTTL: maxTTL}) },
		"default":  func(dsn string) driver.Engine { return open(dsn, nil) },
		"patient":  func(dsn string) driver.Engine { return open(dsn, patient) },
	})
	os.Exit(m.Run())
}

// closing is an engine that closes its pool as well.
type closing struct {
	*pglock.Engine
	pool *pgxpool.Pool
}

func open(dsn string, cfg *pglock.Config) closing {
	pool := newPool(dsn)
	return closing{pglock.New(pool, cfg), pool}
}

func (e closing) Close() error {
	defer e.pool.Close()
	return e.Engine.Close()
}

// newPool makes a pool that connects to nothing by itself.
func newPool(dsn string) *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	return pool
}

// TestExam runs every client of the conformance suite in a process of its own, and every case
// in a database of its own.
func TestExam(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	verdict.Is(t, "PostgreSQL: the holder is partitioned from the server", verdict.Safe)
	verdict.Is(t, "PostgreSQL: a waiter dies", verdict.Safe)
	examtest.Parallel(t, drivertest.Suite{World: func(t testing.TB) drivertest.World {
		w := &world{engine: engineOf(t.Name())}
		if w.alone = slices.Contains(alone, path.Base(t.Name())); w.alone {
			w.pg = pgtest.StartPostgres(t)
		} else {
			w.pg = pgtest.Database(t)
		}
		return w
	}})
}

// alone are the cases that have a server of their own, since they stop it.
var alone = []string{"ended-context", "outage", "record-lasts", "record-outage", "resize-lasts", "token-increasing", "unreachable"}

// engineOf returns the engine for a case: where the server is restarted, one that does not wait
// for long then, and otherwise one whose leases last, however slow the machine is.
func engineOf(name string) string {
	if strings.HasSuffix(name, "/token-increasing") || strings.HasSuffix(name, "/resize-lasts") {
		return "postgres"
	}
	return "patient"
}

// world is a database.
type world struct {
	pg     *pgtest.Postgres
	alone  bool // nobody else uses the server
	engine string
}

func (w *world) Client(t testing.TB) drivertest.Client { return proc.Start(t, w.engine, w.pg.DSN()) }

func (w *world) Restart(t testing.TB) { w.server(t).Restart(t) }
func (w *world) Cut(t testing.TB)     { w.server(t).Freeze(t) }
func (w *world) Mend(t testing.TB)    { w.server(t).Thaw(t) }

// server returns the server, for whoever stops it.
func (w *world) server(t testing.TB) *pgtest.Postgres {
	t.Helper()
	if !w.alone {
		t.Fatal("this case stops a server that others use: name it in alone")
	}
	return w.pg
}
