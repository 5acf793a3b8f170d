//go:build unix

package pgrecords_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/pgrecords"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{"rows": func(where string) driver.Engine {
		e, err := open(where)
		if err != nil {
			panic(err)
		}
		return e
	}})
	os.Exit(m.Run())
}

// process is an engine that closes its connections as well.
type process struct {
	*recordlock.Engine
	end func()
}

func (p process) Close() error {
	defer p.end()
	return p.Engine.Close()
}

// records opens the records of a place: the URL of a pool, that of a connection that listens or "-", and
// a table.
func records(where string) (r driver.Records, end func(), err error) {
	f := strings.Fields(where)
	cfg, err := pgxpool.ParseConfig(f[0])
	if err != nil {
		return nil, nil, err
	}
	pgrecords.NoCancel(cfg)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	plain := pgrecords.New(pool, &pgrecords.Config{Table: f[2]})
	if f[1] == "-" {
		return plain, pool.Close, nil
	}
	direct, err := pgconn.ParseConfig(f[1])
	if err != nil {
		return nil, nil, err
	}
	l := plain.Listen(direct)
	return l, func() { _ = l.Close(); pool.Close() }, nil
}

// open opens locks in a place.
func open(where string) (driver.Engine, error) {
	r, end, err := records(where)
	if err != nil {
		return nil, err
	}
	return process{recordlock.New(r, nil), end}, nil
}

// place is a server behind a pooler in transaction mode.
type place struct {
	*pgtest.Postgres
	pooled string // the URL behind the pooler
	tables atomic.Int64
}

func start(t testing.TB, pool int) *place {
	t.Helper()
	p := pgtest.StartPostgres(t)
	b := pgtest.StartPgBouncer(t, p, "transaction", fmt.Sprint("default_pool_size = ", pool), "server_login_retry = 1")
	return &place{Postgres: p, pooled: b.DSN() + "&pool_max_conns=24"}
}

// table makes a table, and returns where it is for a client that polls, or listens.
func (p *place) table(t testing.TB, listens bool) (where string) {
	t.Helper()
	direct := "-"
	if listens {
		direct = p.DSN()
	}
	where = fmt.Sprintf("%s %s records%d", p.pooled, direct, p.tables.Add(1))
	r := p.records(t, where)
	if err := r.(interface{ Init(context.Context) error }).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return where
}

// records opens the records of a place until the end of the test.
func (p *place) records(t testing.TB, where string) driver.Records {
	t.Helper()
	r, end, err := records(where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return r
}

// world is a table, beside a memory that has the locks which some of the cases take.
type world struct {
	*place
	where string
	locks *memlock.Engine
}

func (w *world) Client(t testing.TB) drivertest.Client {
	r := w.records(t, w.where)
	if l, ok := r.(*pgrecords.Listener); ok {
		_ = ready(t, l, patience) // it reports nothing before; a case may have frozen the server
	}
	return examtest.Store{Engine: w.locks.Client(), Stored: r}
}
func (w *world) Restart(t testing.TB) { w.Crash(t) }
func (w *world) Cut(t testing.TB)     { w.Postgres.Freeze(t) }
func (w *world) Mend(t testing.TB)    { w.Postgres.Thaw(t) }

// TestExam runs the cases of the conformance suite that are about records, behind a pooler.
func TestExam(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	examtest.Records(t, "record-", drivertest.Suite{World: func(t testing.TB) drivertest.World {
		return &world{p, p.table(t, true), memlock.New(nil)}
	}})
}

// TestLocks runs the conformance suite on locks behind a pooler in transaction mode, with processes that
// are killed and frozen. Half of the processes listen.
func TestLocks(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELOCK_SLOW") == "" {
		t.Skip("make slow runs it: the suite of locks in sqlrecords, and that of records here, test the same code")
	}
	for _, pool := range []int{1, 2, 20} {
		t.Run(fmt.Sprint("pool of ", pool), func(t *testing.T) {
			t.Parallel()
			examtest.Locks(t, func(t testing.TB) examtest.Server {
				p := start(t, pool)
				return examtest.Server{
					Place: func(t testing.TB) func(testing.TB) drivertest.Client {
						listening := p.table(t, true)
						polling := strings.Replace(listening, " "+p.DSN()+" ", " - ", 1)
						var clients atomic.Int64
						return func(t testing.TB) drivertest.Client {
							if clients.Add(1)%2 == 0 {
								return proc.Start(t, "rows", polling)
							}
							return proc.Start(t, "rows", listening)
						}
					},
					Restart: func(t testing.TB) { p.Crash(t) }, Freeze: func(t testing.TB) { p.Freeze(t) }, Thaw: func(t testing.TB) { p.Thaw(t) },
				}
			}, nil)
		})
	}
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	p := start(t, 6)
	where := p.table(t, false)
	_, rest, _ := strings.Cut(p.pooled, "@")
	pooler, _, _ := strings.Cut(rest, "/")
	examtest.Gone(t, examtest.Links(pooler, func(t testing.TB, addr string) driver.Engine {
		e, err := open(strings.Replace(where, pooler, addr, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.(process).Close() })
		return e
	}))
}
