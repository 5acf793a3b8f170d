//go:build unix

package sqlrecords_test

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{
		"mysql": func(where string) driver.Engine { return openLocks("mysql", sqlrecords.MySQL, where) },
		"pgx":   func(where string) driver.Engine { return openLocks("pgx", sqlrecords.PostgreSQL, where) },
	})
	os.Exit(m.Run())
}

// lockProcess is an engine that closes its pool as well.
type lockProcess struct {
	*recordlock.Engine
	db *sql.DB
}

func (p lockProcess) Close() error {
	defer p.db.Close()
	return p.Engine.Close()
}

// openLocks opens locks in a table: where is the data source name, a space, and the table.
func openLocks(name string, dialect sqlrecords.Dialect, where string) driver.Engine {
	dsn, table, _ := strings.Cut(where, " ")
	db, err := sql.Open(name, dsn)
	if err != nil {
		panic(err)
	}
	db.SetMaxIdleConns(8)
	return lockProcess{recordlock.New(sqlrecords.New(db, dialect, &sqlrecords.Config{Table: table}), nil), db}
}

// TestLocks runs the conformance suite on locks in a table of each dialect. The dialects differ only in
// the records, whose suite runs on both.
func TestLocks(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *server{"MariaDB": startMariaDB, "PostgreSQL": startPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "MariaDB" && os.Getenv("FENCELOCK_SLOW") == "" {
				t.Skip("make slow runs it: the suite of locks on MariaDB, and that of records here, test the same code")
			}
			examtest.Locks(t, func(t testing.TB) examtest.Server {
				s := start(t)
				return examtest.Server{
					Place: func(t testing.TB) func(testing.TB) drivertest.Client {
						where := s.dsn(s.addr, nil) + " " + s.table(t)
						return func(t testing.TB) drivertest.Client { return proc.Start(t, s.driver, where) }
					},
					Restart: func(t testing.TB) { s.restart(t) }, Freeze: func(t testing.TB) { s.freeze(t) }, Thaw: func(t testing.TB) { s.thaw(t) },
				}
			}, nil)
		})
	}
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, s *server) {
		table := s.table(t)
		examtest.Gone(t, examtest.Links(s.addr, func(t testing.TB, addr string) driver.Engine {
			e := openLocks(s.driver, s.dialect, s.dsn(addr, nil)+" "+table)
			t.Cleanup(func() { _ = e.(lockProcess).Close() })
			return e
		}))
	})
}
