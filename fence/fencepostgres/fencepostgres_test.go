//go:build unix

package fencepostgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// start starts a server and makes the tables.
func start(t *testing.T) (s guardtest.SQL, dsn string) {
	dsn = pgtest.StartPostgres(t).DSN()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		fencepostgres.Schema(), fencepostgres.Schema(), guardtest.Invoices, "CREATE TABLE written (id bigserial, token bigint)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return guardtest.SQL{
		DB: db, Dollar: true, Apart: true, Store: fencepostgres.Store{DB: db}, Waits: "SELECT count(*) FROM pg_locks WHERE NOT granted",
		Check: func(ctx context.Context, tx *sql.Tx, resource string) error {
			return fencepostgres.Check(ctx, tx, resource)
		},
		Again: cannotSerialize,
	}, dsn
}

// cannotSerialize reports that the server says so.
func cannotSerialize(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && failed.Code == "40001"
}

func TestPostgres(t *testing.T) {
	s, dsn := start(t)
	s.Run(t)
	t.Run("names", func(t *testing.T) {
		for _, name := range []string{strings.Repeat("n", 2001), "a\xff", "a\x00"} {
			if err := s.Store.Check(t.Context(), name, fence.Fence{Token: 1, Floor: 1}); !errors.Is(err, fence.ErrResource) {
				t.Errorf("%.10q: %v", name, err)
			}
		}
	})
	t.Run("column", func(t *testing.T) {
		r := s.Invoice(t, "column", sql.LevelDefault)
		r.Write = s.Column
		if err := guardtest.Run(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
	t.Run("snapshot", func(t *testing.T) { checkSnapshot(t, s) })
	t.Run("examples", func(t *testing.T) { checkExamples(t, dsn) })
	t.Run("mutants", func(t *testing.T) { checkPostgresMutants(t, s) })
}

// checkSnapshot: a stale holder whose snapshot is older than its successor's write is
// not let in either; the server says that it cannot serialize that.
func checkSnapshot(t *testing.T, s guardtest.SQL) {
	r := s.Invoice(t, "snapshot", sql.LevelReadCommitted)
	if err := r.Write(guardtest.Under(t, 5), "first"); err != nil {
		t.Fatal(err)
	}
	err := s.InTx(t.Context(), sql.LevelRepeatableRead, func(tx *sql.Tx) error {
		if _, err := tx.Exec("SELECT value FROM invoice"); err != nil { // takes the snapshot
			return err
		}
		if err := r.Write(guardtest.Under(t, 6), "second"); err != nil {
			return err
		}
		return fencepostgres.Check(guardtest.Under(t, 5), tx, r.Name)
	})
	if !cannotSerialize(err) {
		t.Errorf("the guard returned %v, want the server's serialization failure", err)
	}
}

// checkExamples runs the examples of this package that need a server.
func checkExamples(t *testing.T, dsn string) {
	t.Setenv("DATABASE_URL", dsn)
	if got, want := guardtest.Prints(ExampleCheck), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("ExampleCheck prints %q, want %q", got, want)
	}
	want := "first: <nil>\nsecond: <nil>\nfirst again: <nil>\nexclusive: <nil>\nlate: true\n"
	if got := guardtest.Prints(ExampleCheck_shared); got != want {
		t.Errorf("ExampleCheck_shared prints %q, want %q", got, want)
	}
}

// checkPostgresMutants: a guard without one of its parts does not pass.
func checkPostgresMutants(t *testing.T, s guardtest.SQL) {
	whole := sqlfloor.PostgresRaise
	defer func() { sqlfloor.PostgresRaise = whole }()
	for name, m := range map[string][2]string{
		"no comparison":    {"WHERE f.floor <= $2::bigint", "WHERE $2::bigint > 0"},
		"stores the token": {"VALUES ($1::text, $3::bigint)", "VALUES ($1::text, greatest($3::bigint, $2::bigint))"},
		"lowers the floor": {"greatest(f.floor, excluded.floor)", "excluded.floor"},
		"never raises":     {"greatest(f.floor, excluded.floor)", "f.floor"},
		"refuses the same": {"f.floor <= $2", "f.floor < $2"},
	} {
		sqlfloor.PostgresRaise = strings.Replace(whole, m[0], m[1], 1)
		if sqlfloor.PostgresRaise == whole {
			t.Errorf("%s: changes nothing", name)
		}
		err := guardtest.Run(t.Context(), s.Invoice(t, "mutant "+name, sql.LevelReadCommitted))
		if err == nil {
			t.Errorf("%s: passes", name)
		}
		t.Log(fmt.Sprint(name, ": ", err))
	}
}
