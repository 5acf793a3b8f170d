//go:build unix

package fencemysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencemysql"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleCheck() {
	db, err := sql.Open("mysql", os.Getenv("DATABASE_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	ctx := context.Background()

	pay := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fencemysql.Check(ctx, tx, "invoice:42"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE invoice SET value = 'paid' WHERE id = '42'"); err != nil {
			return err
		}
		return tx.Commit()
	}

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	fmt.Println("next:", locks.Do(ctx, "invoice:42", pay))
	fmt.Println("late:", errors.Is(pay(inFlight), fence.ErrStale))
}

// open opens a pool.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// guard is the guard of a pool.
func guard(db *sql.DB) guardtest.SQL {
	return guardtest.SQL{
		DB: db, Store: fencemysql.Store{DB: db}, Waits: "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
		Check: func(ctx context.Context, tx *sql.Tx, resource string) error {
			return fencemysql.Check(ctx, tx, resource)
		},
		Again: func(err error) bool {
			failed, ok := errors.AsType[*mysql.MySQLError](err)
			return ok && failed.Number == 1213
		},
	}
}

func TestCheck(t *testing.T) {
	server := mariadbtest.Start(t)
	db := open(t, server.DSN("test"))
	for _, statement := range []string{
		fencemysql.Schema(), fencemysql.Schema(),
		guardtest.Invoices,
		"CREATE TABLE written (id INT AUTO_INCREMENT PRIMARY KEY, token BIGINT)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	guard(db).Run(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			found := guard(open(t, server.DSN("test")+"?clientFoundRows=true&interpolateParams=true"))
			if err := guardtest.Run(t.Context(), found.Invoice(t, level.String()+" found rows", level)); err != nil {
				t.Error(err)
			}
			checkSnapshot(t, db, level, "")
			checkSnapshot(t, open(t, server.DSN("test")+"?innodb_snapshot_isolation=ON"), level, "strict ")
		})
	}
	t.Run("column", func(t *testing.T) { checkColumn(t, server, db) })
	t.Run("frozen", func(t *testing.T) { checkFrozen(t, server, db) })
	t.Run("ended", func(t *testing.T) { checkEnded(t, db) })
	t.Run("names", func(t *testing.T) { checkNames(t, db) })
	t.Run("character sets", func(t *testing.T) { checkCharacterSets(t, server) })
	t.Run("lax", func(t *testing.T) { checkLax(t, server) })
	t.Run("together", func(t *testing.T) { checkTogether(t, db) })
	t.Run("example", func(t *testing.T) { checkExample(t, server.DSN("test")) })
	t.Run("mutants", func(t *testing.T) { checkMutants(t, db) })
	t.Run("no table", func(t *testing.T) { checkNoTable(t, db) })
}

// checkSnapshot: a stale holder is refused also in a transaction whose snapshot is older
// than its successor's write. A server that lets nobody lock what has changed since the
// snapshot says so instead (1020).
func checkSnapshot(t *testing.T, db *sql.DB, level sql.IsolationLevel, run string) {
	r := guard(db).Invoice(t, run+"snapshot "+level.String(), sql.LevelReadCommitted)
	other := guard(db).Invoice(t, run+"other "+level.String(), sql.LevelReadCommitted)
	if err := errors.Join(r.Write(guardtest.Under(t, 5), "first"), other.Write(guardtest.Under(t, 5), "first")); err != nil {
		t.Fatal(err)
	}
	err := guard(db).InTx(t.Context(), level, func(tx *sql.Tx) error {
		var value string // takes the snapshot
		if err := tx.QueryRow("SELECT value FROM invoice WHERE id = ?", other.Name).Scan(&value); err != nil {
			return err
		}
		if err := r.Write(guardtest.Under(t, 6), "second"); err != nil {
			return err
		}
		return fencemysql.Check(guardtest.Under(t, 5), tx, r.Name)
	})
	if failed, ok := errors.AsType[*mysql.MySQLError](err); ok && failed.Number == 1020 && run != "" && level != sql.LevelReadCommitted {
		return
	}
	want := fence.StaleError{Resource: r.Name, Token: 5, Floor: 6}
	if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != want {
		t.Errorf("the guard returned %v, want %v", err, &want)
	}
}

// checkColumn: a floor in a column of the row. Without clientFoundRows the server counts
// rows that have changed, and the same write once more looks as if it were stale.
func checkColumn(t *testing.T, server *mariadbtest.MariaDB, db *sql.DB) {
	r := guard(db).Invoice(t, "column", sql.LevelDefault)
	found := guard(open(t, server.DSN("test")+"?clientFoundRows=true"))
	r.Write = found.Column
	if err := guardtest.Run(t.Context(), r); err != nil {
		t.Error(err)
	}
	last := guardtest.Under(t, 1<<61)
	if err := errors.Join(found.Column(last, "same"), found.Column(last, "same")); err != nil {
		t.Errorf("the same write twice, with clientFoundRows: %v", err)
	}
	if err := guard(db).Column(last, "same"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the same write once more, without clientFoundRows: %v: docs/guards.md says that it looks stale", err)
	}
}

// checkFrozen: the server ends the transaction of a process that was stopped in it, if it is
// told to, and the next holder writes. What the other had done is undone, and so is what it
// does when it goes on.
func checkFrozen(t *testing.T, server *mariadbtest.MariaDB, db *sql.DB) {
	r := guard(db).Invoice(t, "frozen", sql.LevelReadCommitted)
	tx, err := open(t, server.DSN("test")+"?idle_transaction_timeout=1").Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // done by the server before that
	if err := fencemysql.Check(guardtest.Under(t, 5), tx, r.Name); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(guardtest.Under(t, 6), "next"); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	if _, err := tx.Exec("UPDATE invoice SET value = 'late' WHERE id = 'frozen'"); err == nil {
		t.Error("the transaction went on")
	}
	if got, err := r.Read(); got != "next" {
		t.Errorf("the invoice has %q, %v, want that of the next holder", got, err)
	}
}

// checkEnded: in a transaction that the server has ended already, without the program's
// doing, the guard would lock nothing, and is an error.
func checkEnded(t *testing.T, db *sql.DB) {
	r := guard(db).Invoice(t, "ended", sql.LevelReadCommitted)
	err := guard(db).InTx(t.Context(), sql.LevelDefault, func(tx *sql.Tx) error {
		if _, err := tx.Exec("CREATE TABLE IF NOT EXISTS ends_it (id INT)"); err != nil {
			return err
		}
		if err := fencemysql.Check(guardtest.Under(t, 5), tx, r.Name); err != nil {
			return err
		}
		if err := r.Write(guardtest.Under(t, 6), "next"); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE invoice SET value = 'late' WHERE id = 'ended'")
		return err
	})
	if err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("the guard of a transaction that has ended: %v, want an error", err)
	}
	if got, err := r.Read(); got == "late" {
		t.Errorf("the invoice has %q, %v", got, err)
	}
}

// checkNames: resources are bytes, with no rules of a collation.
func checkNames(t *testing.T, db *sql.DB) {
	store := fencemysql.Store{DB: db}
	for i, name := range []string{"a", "A", "ä", "a ", " a", "a\x00", "a\xff", strings.Repeat("n", 767)} {
		token := int64(100 - i) // each is below those of the names before
		if err := store.Check(t.Context(), name, fence.Fence{Token: token, Floor: token}); err != nil {
			t.Errorf("%.10q: %v", name, err)
		}
	}
}

// checkCharacterSets: names are told apart whatever the connection's character set lacks.
func checkCharacterSets(t *testing.T, server *mariadbtest.MariaDB) {
	for _, settings := range []string{"?character_set_connection=latin1", "?character_set_connection=latin1&interpolateParams=true", "?charset=latin1"} {
		store := fencemysql.Store{DB: open(t, server.DSN("test")+settings)}
		for i, name := range []string{"日", "月", "ы"} {
			token := int64(100 - i) // each is below those of the names before
			if err := store.Check(t.Context(), settings+name, fence.Fence{Token: token, Floor: token}); err != nil {
				t.Errorf("%s: %q: %v", settings, name, err)
			}
		}
	}
}

// checkLax: a server that cuts what is too long, as many do that are not strict, lets
// nobody in by it. A name that is too long is refused before the server is asked, and a
// table with less room for names is an error.
func checkLax(t *testing.T, server *mariadbtest.MariaDB) {
	db := open(t, server.DSN("test")+"?sql_mode=''")
	store := fencemysql.Store{DB: db}
	long := strings.Repeat("l", 768)
	for token := int64(9); token > 7; token-- {
		err := store.Check(t.Context(), long, fence.Fence{Token: token, Floor: token})
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "767") {
			t.Errorf("a name of %d bytes, token %d: %v, want that it is too long", len(long), token, err)
		}
	}
	if err := store.Check(t.Context(), long[1:], fence.Fence{Token: 1, Floor: 1}); err != nil {
		t.Errorf("the name that it would be cut to: %v", err)
	}
	if _, err := db.Exec("CREATE DATABASE narrow"); err != nil {
		t.Fatal(err)
	}
	store.DB = open(t, server.DSN("narrow")+"?sql_mode=''")
	if _, err := store.DB.Exec(strings.Replace(fencemysql.Schema(), "767", "10", 1)); err != nil {
		t.Fatal(err)
	}
	for token := int64(9); token > 7; token-- {
		if err := store.Check(t.Context(), "a long name", fence.Fence{Token: token, Floor: token}); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a table that cuts names, token %d: %v, want an error", token, err)
		}
	}
}

// checkTogether: many that ask for many new resources at once all get an answer.
func checkTogether(t *testing.T, db *sql.DB) {
	store := fencemysql.Store{DB: db}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() { // ends with its checks
			for n := range 20 {
				name := fmt.Sprintf("together %d", (i+n*7)%40)
				if err := store.Check(t.Context(), name, fence.Fence{Token: 5, Floor: 5}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
}

// checkExample runs the example of this package, which needs a server.
func checkExample(t *testing.T, dsn string) {
	t.Setenv("DATABASE_DSN", dsn)
	if got, want := guardtest.Prints(ExampleCheck), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("the example prints %q, want %q", got, want)
	}
}

// checkMutants: a guard without one of its parts does not pass.
func checkMutants(t *testing.T, db *sql.DB) {
	for name, m := range map[string]struct {
		statement *string
		old, new  string
	}{
		"no comparison":    {&sqlfloor.MySQLStale, "floor > ?", "floor > ? AND FALSE"},
		"lowers the floor": {&sqlfloor.MySQLRaise, "GREATEST(floor, ?)", "?"},
		"never raises":     {&sqlfloor.MySQLRaise, "GREATEST(floor, ?)", "LEAST(floor, ?)"},
		"refuses the same": {&sqlfloor.MySQLStale, "floor > ?", "floor >= ?"},
	} {
		whole := *m.statement
		*m.statement = strings.Replace(whole, m.old, m.new, 1)
		if *m.statement == whole {
			t.Errorf("%s: changes nothing", name)
		}
		err := guardtest.Run(t.Context(), guard(db).Invoice(t, "mutant "+name, sql.LevelReadCommitted))
		if err == nil {
			t.Errorf("%s: passes", name)
		}
		t.Log(name, ": ", err)
		*m.statement = whole
	}
	whole := sqlfloor.MySQLStale // a read that does not lock sees an old snapshot
	defer func() { sqlfloor.MySQLStale = whole }()
	sqlfloor.MySQLStale = strings.Replace(whole, " FOR UPDATE", "", 1)
	r := guard(db).Invoice(t, "mutant snapshot", sql.LevelReadCommitted)
	if err := r.Write(guardtest.Under(t, 5), "first"); err != nil {
		t.Fatal(err)
	}
	_ = guard(db).InTx(t.Context(), sql.LevelRepeatableRead, func(tx *sql.Tx) error {
		_, err := tx.Exec("SELECT value FROM invoice")
		err = errors.Join(err, r.Write(guardtest.Under(t, 6), "second"))
		if late := fencemysql.Check(guardtest.Under(t, 5), tx, r.Name); err != nil || late != nil {
			t.Errorf("without FOR UPDATE the guard returned %v and %v: this test does not see the difference", err, late)
		}
		return errors.New("roll back")
	})
}

// checkNoTable: without its table the guard is an error, never a pass.
func checkNoTable(t *testing.T, db *sql.DB) {
	if _, err := db.Exec("DROP TABLE fence_floor"); err != nil {
		t.Fatal(err)
	}
	err := guard(db).Invoice(t, "no table", sql.LevelReadCommitted).Write(guardtest.Under(t, 1), "")
	if failed, ok := errors.AsType[*mysql.MySQLError](err); !ok || failed.Number != 1146 {
		t.Errorf("without its table the guard returns %v", err)
	}
}
