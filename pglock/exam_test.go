//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/proctest"
	"github.com/fencelock/fencelock/pglock"
)

// maxTTL is the deployment's longest lease, which is how long a server that
// started anew grants nothing.
const maxTTL = 10 * time.Second

func TestMain(m *testing.M) {
	proctest.Main(map[string]func(string) driver.Engine{
		"postgres": func(dsn string) driver.Engine {
			return pglock.New(newPool(dsn), &pglock.Config{MaxTTL: maxTTL})
		},
		"default": func(dsn string) driver.Engine { return pglock.New(newPool(dsn), nil) },
		"patient": func(dsn string) driver.Engine { return pglock.New(newPool(dsn), patient) },
	})
	os.Exit(m.Run())
}

// newPool makes a pool that connects to nothing by itself.
func newPool(dsn string) *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	return pool
}

// TestExam runs every client of the exam in a process of its own, and every case
// in a database of its own.
func TestExam(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_connections=200")
	drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World {
		return &world{pg: pg, dsn: database(t, pg), engine: engineOf(t.Name())}
	}})
}

// engineOf returns the engine for a case: where the server is restarted, one that does not wait
// for long then, and otherwise one whose leases last, however slow the machine is.
func engineOf(name string) string {
	if strings.HasSuffix(name, "/token-increasing") || strings.HasSuffix(name, "/resize-lasts") {
		return "postgres"
	}
	return "patient"
}

var databases atomic.Int64

// database creates a database and returns its URL.
func database(t testing.TB, pg *pgtest.Postgres) string {
	t.Helper()
	name := fmt.Sprintf("exam%d", databases.Add(1))
	pg.Exec(t, "CREATE DATABASE "+name+" TEMPLATE template0")
	return strings.Replace(pg.DSN(), "/postgres?", "/"+name+"?", 1)
}

// world is a database.
type world struct {
	pg     *pgtest.Postgres
	dsn    string
	engine string
}

func (w *world) Client(t testing.TB) drivertest.Client { return proctest.Start(t, w.engine, w.dsn) }

func (w *world) Restart(t testing.TB) { w.pg.Restart(t) }
func (w *world) Cut(t testing.TB)     { w.pg.Freeze(t) }
func (w *world) Mend(t testing.TB)    { w.pg.Thaw(t) }
