//go:build unix

package fencepostgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/fence/internal/exam"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/memlock"
)

// inTx runs fn in a transaction, and commits unless fn fails.
func inTx(ctx context.Context, db *sql.DB, level sql.IsolationLevel, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// under returns a context with the fence of an exclusive holder.
func under(t *testing.T, token int64) context.Context {
	return fence.NewContext(t.Context(), fence.Fence{Name: "lock", Token: token, Floor: token})
}

// openPostgres starts a server and makes the tables.
func openPostgres(t *testing.T) (db *sql.DB, dsn string) {
	dsn = pgtest.StartPostgres(t).DSN()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		fencepostgres.Schema(), fencepostgres.Schema(),
		"CREATE TABLE invoice (id text PRIMARY KEY, value text NOT NULL DEFAULT '', fence bigint NOT NULL DEFAULT 0)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return db, dsn
}

// invoice is a row that Check guards.
func invoice(t *testing.T, db *sql.DB, id string, level sql.IsolationLevel) exam.Resource {
	if _, err := db.Exec("INSERT INTO invoice (id) VALUES ($1)", id); err != nil {
		t.Fatal(err)
	}
	return exam.Resource{
		Name: id,
		Write: func(ctx context.Context, value string) error {
			return inTx(ctx, db, level, func(tx *sql.Tx) error {
				if err := fencepostgres.Check(ctx, tx, id); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "UPDATE invoice SET value = $2 WHERE id = $1", id, value)
				return err
			})
		},
		Read: func() (value string, err error) {
			return value, db.QueryRow("SELECT value FROM invoice WHERE id = $1", id).Scan(&value)
		},
	}
}

func TestPostgres(t *testing.T) {
	db, dsn := openPostgres(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			if err := exam.Run(t.Context(), invoice(t, db, "invoice "+level.String(), level)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("store", func(t *testing.T) { checkStore(t, db) })
	t.Run("tracer", func(t *testing.T) { checkTracer(t, db) })
	t.Run("column", func(t *testing.T) {
		if err := exam.Run(t.Context(), column(t, db)); err != nil {
			t.Error(err)
		}
	})
	t.Run("uncommitted", func(t *testing.T) { checkUncommitted(t, db) })
	t.Run("snapshot", func(t *testing.T) { checkSnapshot(t, db) })
	t.Run("race", func(t *testing.T) { checkRace(t, db) })
	t.Run("examples", func(t *testing.T) { checkExamples(t, dsn) })
	t.Run("mutants", func(t *testing.T) { checkPostgresMutants(t, db) })
}

// checkStore: a Store shares its floors with transactions, and refuses what it cannot keep.
func checkStore(t *testing.T, db *sql.DB) {
	r := invoice(t, db, "store", sql.LevelReadCommitted)
	store := fencepostgres.Store{DB: db}
	at := func(token int64) error {
		return store.Check(t.Context(), r.Name, fence.Fence{Token: token, Floor: token})
	}
	if err := errors.Join(at(6), at(6)); err != nil {
		t.Error(err)
	}
	if err := r.Write(under(t, 5), "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after the store has seen 6, a transaction with 5: %v", err)
	}
	if err := r.Write(under(t, 7), "next"); err != nil {
		t.Error(err)
	}
	stale, ok := errors.AsType[*fence.StaleError](at(6))
	if !ok || stale.Floor != 7 {
		t.Errorf("after a transaction with 7, the store with 6: %+v", stale)
	}
	if err := at(0); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("without a token: %v", err)
	}
	for _, name := range []string{strings.Repeat("n", 2001), "a\xff", "a\x00"} {
		if err := store.Check(t.Context(), name, fence.Fence{Token: 1, Floor: 1}); !errors.Is(err, fence.ErrResource) {
			t.Errorf("%.10q: %v", name, err)
		}
	}
}

// checkTracer: a store has no transaction open while a tracer runs, so that one that blocks
// or panics keeps nobody waiting.
func checkTracer(t *testing.T, db *sql.DB) {
	store := fencepostgres.Store{DB: db}
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(context.Context, fencelock.TraceStale) {
			if used := db.Stats().InUse; used != 0 {
				t.Errorf("%d connections are in use while the tracer runs", used)
			}
			panic("tracer")
		},
	}})
	lock, err := locks.Acquire(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	next := fence.Fence{Name: "lock", Token: lock.Token() + 1, Floor: lock.Token() + 1}
	if err := store.Check(t.Context(), "traced", next); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("the tracer was not told")
		}
	}()
	_ = store.Check(lock.Context(), "traced", fence.Fence{Name: "lock", Token: lock.Token(), Floor: lock.Token()})
}

// column is a row with a floor of its own. The exam wants to know floors that Wrote
// cannot know.
func column(t *testing.T, db *sql.DB) exam.Resource {
	r := invoice(t, db, "column", sql.LevelDefault)
	r.Write = func(ctx context.Context, value string) error {
		f, err := fence.From(ctx)
		if err != nil {
			return err
		}
		result, err := db.ExecContext(ctx, `UPDATE invoice SET value = $2, fence = greatest(fence, $3)
			WHERE id = $1 AND fence <= $4`, "column", value, f.Floor, f.Token)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return err
		}
		err = fence.Wrote(ctx, "column", rows)
		if stale, ok := errors.AsType[*fence.StaleError](err); ok {
			return errors.Join(db.QueryRow("SELECT fence FROM invoice WHERE id = 'column'").Scan(&stale.Floor), err)
		}
		return err
	}
	return r
}

// checkUncommitted: a successor waits until a transaction that has passed the guard has
// ended, so that the order of the writes is that of the tokens.
func checkUncommitted(t *testing.T, db *sql.DB) {
	r := invoice(t, db, "uncommitted", sql.LevelReadCommitted)
	passed, written := make(chan struct{}), make(chan error, 1)
	err := inTx(t.Context(), db, sql.LevelReadCommitted, func(tx *sql.Tx) error {
		if err := fencepostgres.Check(under(t, 5), tx, r.Name); err != nil {
			return err
		}
		go func() { // ends with the second transaction
			close(passed)
			written <- r.Write(under(t, 6), "second")
		}()
		<-passed
		for waits := 0; waits == 0; { // until the server says that it waits for a lock
			err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waits)
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE invoice SET value = 'first' WHERE id = $1", r.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read(); got != "second" {
		t.Errorf("the invoice has %q, %v, want that of the second holder", got, err)
	}
}

// checkSnapshot: a stale holder whose snapshot is older than its successor's write is
// not let in either; the server says that it cannot serialize that.
func checkSnapshot(t *testing.T, db *sql.DB) {
	r := invoice(t, db, "snapshot", sql.LevelReadCommitted)
	if err := r.Write(under(t, 5), "first"); err != nil {
		t.Fatal(err)
	}
	err := inTx(t.Context(), db, sql.LevelRepeatableRead, func(tx *sql.Tx) error {
		if _, err := tx.Exec("SELECT value FROM invoice"); err != nil { // takes the snapshot
			return err
		}
		if err := r.Write(under(t, 6), "second"); err != nil {
			return err
		}
		return fencepostgres.Check(under(t, 5), tx, r.Name)
	})
	if failed, ok := errors.AsType[*pgconn.PgError](err); !ok || failed.Code != "40001" {
		t.Errorf("the guard returned %v, want the server's serialization failure", err)
	}
}

// checkRace: of many holders at once, the writes that were accepted came in the order
// of their tokens, as the guarded counter tells.
func checkRace(t *testing.T, db *sql.DB) {
	if _, err := db.Exec("CREATE TABLE log (id bigserial, token bigint)"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for token := range int64(32) {
		all.Go(func() { // ends with its transaction
			ctx := under(t, token+1)
			err := inTx(ctx, db, sql.LevelReadCommitted, func(tx *sql.Tx) error {
				if err := fencepostgres.Check(ctx, tx, "race"); err != nil {
					return err
				}
				_, err := tx.Exec("INSERT INTO log (token) VALUES ($1)", token+1)
				return err
			})
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var wrong, last int64
	err := db.QueryRow(`SELECT count(*) FILTER (WHERE token < before), max(token)
		FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM log) AS l`).Scan(&wrong, &last)
	if err != nil || wrong != 0 || last != 32 {
		t.Errorf("%d writes after greater tokens, the greatest is %d, %v", wrong, last, err)
	}
}

// checkExamples runs the examples of this package that need a server.
func checkExamples(t *testing.T, dsn string) {
	t.Setenv("DATABASE_URL", dsn)
	if got, want := exam.Prints(ExampleCheck), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("ExampleCheck prints %q, want %q", got, want)
	}
	want := "first: <nil>\nsecond: <nil>\nfirst again: <nil>\nexclusive: <nil>\nlate: true\n"
	if got := exam.Prints(ExampleCheck_shared); got != want {
		t.Errorf("ExampleCheck_shared prints %q, want %q", got, want)
	}
}

// checkPostgresMutants: a guard without one of its parts does not pass.
func checkPostgresMutants(t *testing.T, db *sql.DB) {
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
		err := exam.Run(t.Context(), invoice(t, db, "mutant "+name, sql.LevelReadCommitted))
		if err == nil {
			t.Errorf("%s: passes", name)
		}
		t.Log(fmt.Sprint(name, ": ", err))
	}
}
