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
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencemysql"
	"github.com/fencelock/fencelock/fence/internal/exam"
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

// invoice is a row that Check guards.
func invoice(t *testing.T, db *sql.DB, id string, level sql.IsolationLevel) exam.Resource {
	t.Helper()
	if _, err := db.Exec("INSERT INTO invoice (id) VALUES (?)", id); err != nil {
		t.Fatal(err)
	}
	return exam.Resource{
		Name: id,
		Write: func(ctx context.Context, value string) error {
			return inTx(ctx, db, level, func(tx *sql.Tx) error {
				if err := fencemysql.Check(ctx, tx, id); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "UPDATE invoice SET value = ? WHERE id = ?", value, id)
				return err
			})
		},
		Read: func() (value string, err error) {
			return value, db.QueryRow("SELECT value FROM invoice WHERE id = ?", id).Scan(&value)
		},
	}
}

func TestCheck(t *testing.T) {
	server := mariadbtest.Start(t)
	db := open(t, server.DSN("test"))
	for _, statement := range []string{
		fencemysql.Schema(), fencemysql.Schema(),
		"CREATE TABLE invoice (id VARCHAR(100) PRIMARY KEY, value TEXT NOT NULL DEFAULT '', fence BIGINT NOT NULL DEFAULT 0)",
		"CREATE TABLE written (id INT AUTO_INCREMENT PRIMARY KEY, token BIGINT)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			for name, settings := range map[string]string{"": "", "found rows": "?clientFoundRows=true&interpolateParams=true"} {
				db := open(t, server.DSN("test")+settings)
				if err := exam.Run(t.Context(), invoice(t, db, level.String()+name, level)); err != nil {
					t.Error(name, err)
				}
			}
			checkRace(t, db, level)
			checkSnapshot(t, db, level, "")
			checkSnapshot(t, open(t, server.DSN("test")+"?innodb_snapshot_isolation=ON"), level, "strict ")
		})
	}
	t.Run("store", func(t *testing.T) { checkStore(t, db) })
	t.Run("column", func(t *testing.T) { checkColumn(t, server, db) })
	t.Run("uncommitted", func(t *testing.T) { checkUncommitted(t, db) })
	t.Run("frozen", func(t *testing.T) { checkFrozen(t, server, db) })
	t.Run("ended", func(t *testing.T) { checkEnded(t, db) })
	t.Run("names", func(t *testing.T) { checkNames(t, db) })
	t.Run("character sets", func(t *testing.T) { checkCharacterSets(t, server) })
	t.Run("lax", func(t *testing.T) { checkLax(t, server) })
	t.Run("together", func(t *testing.T) { checkTogether(t, db) })
	t.Run("tracer", func(t *testing.T) { checkTracer(t, db) })
	t.Run("example", func(t *testing.T) { checkExample(t, server.DSN("test")) })
	t.Run("mutants", func(t *testing.T) { checkMutants(t, db) })
	t.Run("no table", func(t *testing.T) { checkNoTable(t, db) })
}

// checkRace: of many holders at once, the writes that were accepted came in the order of
// their tokens.
func checkRace(t *testing.T, db *sql.DB, level sql.IsolationLevel) {
	if _, err := db.Exec("DELETE FROM written"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for token := range int64(16) {
		all.Go(func() { // ends with its transaction
			ctx := under(t, token+1)
			for {
				err := inTx(ctx, db, level, func(tx *sql.Tx) error {
					if err := fencemysql.Check(ctx, tx, "race "+level.String()); err != nil {
						return err
					}
					_, err := tx.Exec("INSERT INTO written (token) VALUES (?)", token+1)
					return err
				})
				if failed, ok := errors.AsType[*mysql.MySQLError](err); ok && failed.Number == 1213 {
					continue // nothing was written
				}
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
				return
			}
		})
	}
	all.Wait()
	var wrong, last int64
	err := db.QueryRow(`SELECT COUNT(CASE WHEN token < earlier THEN 1 END), MAX(token)
		FROM (SELECT token, LAG(token) OVER (ORDER BY id) AS earlier FROM written) AS w`).Scan(&wrong, &last)
	if err != nil || wrong != 0 || last != 16 {
		t.Errorf("%d writes after greater tokens, the greatest is %d, %v", wrong, last, err)
	}
}

// checkSnapshot: a stale holder is refused also in a transaction whose snapshot is older
// than its successor's write. A server that lets nobody lock what has changed since the
// snapshot says so instead (1020).
func checkSnapshot(t *testing.T, db *sql.DB, level sql.IsolationLevel, run string) {
	r := invoice(t, db, run+"snapshot "+level.String(), sql.LevelReadCommitted)
	other := invoice(t, db, run+"other "+level.String(), sql.LevelReadCommitted)
	if err := errors.Join(r.Write(under(t, 5), "first"), other.Write(under(t, 5), "first")); err != nil {
		t.Fatal(err)
	}
	err := inTx(t.Context(), db, level, func(tx *sql.Tx) error {
		var value string // takes the snapshot
		if err := tx.QueryRow("SELECT value FROM invoice WHERE id = ?", other.Name).Scan(&value); err != nil {
			return err
		}
		if err := r.Write(under(t, 6), "second"); err != nil {
			return err
		}
		return fencemysql.Check(under(t, 5), tx, r.Name)
	})
	if failed, ok := errors.AsType[*mysql.MySQLError](err); ok && failed.Number == 1020 && run != "" && level != sql.LevelReadCommitted {
		return
	}
	want := fence.StaleError{Resource: r.Name, Token: 5, Floor: 6}
	if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != want {
		t.Errorf("the guard returned %v, want %v", err, &want)
	}
}

// checkStore: a Store shares its floors with transactions.
func checkStore(t *testing.T, db *sql.DB) {
	r := invoice(t, db, "store", sql.LevelReadCommitted)
	store := fencemysql.Store{DB: db}
	if err := store.Check(t.Context(), r.Name, fence.Fence{Token: 6, Floor: 6}); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(under(t, 5), "late"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after the store has seen 6, a transaction with 5: %v", err)
	}
	if err := r.Write(under(t, 7), "next"); err != nil {
		t.Fatal(err)
	}
	if err := store.Check(t.Context(), r.Name, fence.Fence{Token: 6, Floor: 6}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after a transaction with 7, the store with 6: %v", err)
	}
}

// checkColumn: a floor in a column of the row. Without clientFoundRows the server counts
// rows that have changed, and the same write once more looks as if it were stale.
func checkColumn(t *testing.T, server *mariadbtest.MariaDB, db *sql.DB) {
	r := invoice(t, db, "column", sql.LevelDefault)
	write := func(ctx context.Context, db *sql.DB, value string) error {
		f, err := fence.From(ctx)
		if err != nil {
			return err
		}
		result, err := db.ExecContext(ctx, `UPDATE invoice SET value = ?, fence = GREATEST(fence, ?)
			WHERE id = 'column' AND fence <= ?`, value, f.Floor, f.Token)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return err
		}
		err = fence.Wrote(ctx, "column", rows)
		if stale, ok := errors.AsType[*fence.StaleError](err); ok { // the exam wants to know the floor
			return errors.Join(db.QueryRow("SELECT fence FROM invoice WHERE id = 'column'").Scan(&stale.Floor), err)
		}
		return err
	}
	found := open(t, server.DSN("test")+"?clientFoundRows=true")
	r.Write = func(ctx context.Context, value string) error { return write(ctx, found, value) }
	if err := exam.Run(t.Context(), r); err != nil {
		t.Error(err)
	}
	last := under(t, 1<<61)
	if err := errors.Join(write(last, found, "same"), write(last, found, "same")); err != nil {
		t.Errorf("the same write twice, with clientFoundRows: %v", err)
	}
	if err := write(last, db, "same"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the same write once more, without clientFoundRows: %v: docs/guards.md says that it looks stale", err)
	}
}

// checkUncommitted: a successor waits until a transaction that has passed the guard has
// ended, so that the order of the writes is that of the tokens.
func checkUncommitted(t *testing.T, db *sql.DB) {
	r := invoice(t, db, "uncommitted", sql.LevelReadCommitted)
	written := make(chan error, 1)
	err := inTx(t.Context(), db, sql.LevelReadCommitted, func(tx *sql.Tx) error {
		if err := fencemysql.Check(under(t, 5), tx, r.Name); err != nil {
			return err
		}
		go func() { written <- r.Write(under(t, 6), "second") }() // ends with the second transaction
		// Until the server says that it waits for a lock. It tells the same again to who asks
		// within a tenth of a second.
		for waits := 0; waits == 0; time.Sleep(200 * time.Millisecond) {
			err := db.QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&waits)
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE invoice SET value = 'first' WHERE id = ?", r.Name)
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

// checkFrozen: the server ends the transaction of a process that was stopped in it, if it is
// told to, and the next holder writes. What the other had done is undone, and so is what it
// does when it goes on.
func checkFrozen(t *testing.T, server *mariadbtest.MariaDB, db *sql.DB) {
	r := invoice(t, db, "frozen", sql.LevelReadCommitted)
	tx, err := open(t, server.DSN("test")+"?idle_transaction_timeout=1").Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // done by the server before that
	if err := fencemysql.Check(under(t, 5), tx, r.Name); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(under(t, 6), "next"); err != nil {
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
	r := invoice(t, db, "ended", sql.LevelReadCommitted)
	err := inTx(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
		if _, err := tx.Exec("CREATE TABLE IF NOT EXISTS ends_it (id INT)"); err != nil {
			return err
		}
		if err := fencemysql.Check(under(t, 5), tx, r.Name); err != nil {
			return err
		}
		if err := r.Write(under(t, 6), "next"); err != nil {
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

// checkTracer: a tracer that panics leaves no transaction behind, whose lock would keep
// everybody else waiting.
func checkTracer(t *testing.T, db *sql.DB) {
	store := fencemysql.Store{DB: db}
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(context.Context, fencelock.TraceStale) { panic("tracer") },
	}})
	lock, err := locks.Acquire(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	next := fence.Fence{Name: "lock", Token: lock.Token() + 1, Floor: lock.Token() + 1}
	if err := store.Check(t.Context(), "traced", next); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the tracer was not told")
			}
		}()
		_ = store.Check(lock.Context(), "traced", fence.Fence{Name: "lock", Token: lock.Token(), Floor: lock.Token()})
	}()
	if used := db.Stats().InUse; used != 0 {
		t.Errorf("%d connections are in use", used)
	}
}

// checkExample runs the example of this package, which needs a server.
func checkExample(t *testing.T, dsn string) {
	t.Setenv("DATABASE_DSN", dsn)
	if got, want := exam.Prints(ExampleCheck), "next: <nil>\nlate: true\n"; got != want {
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
		err := exam.Run(t.Context(), invoice(t, db, "mutant "+name, sql.LevelReadCommitted))
		if err == nil {
			t.Errorf("%s: passes", name)
		}
		t.Log(name, ": ", err)
		*m.statement = whole
	}
	whole := sqlfloor.MySQLStale // a read that does not lock sees an old snapshot
	defer func() { sqlfloor.MySQLStale = whole }()
	sqlfloor.MySQLStale = strings.Replace(whole, " FOR UPDATE", "", 1)
	r := invoice(t, db, "mutant snapshot", sql.LevelReadCommitted)
	if err := r.Write(under(t, 5), "first"); err != nil {
		t.Fatal(err)
	}
	_ = inTx(t.Context(), db, sql.LevelRepeatableRead, func(tx *sql.Tx) error {
		_, err := tx.Exec("SELECT value FROM invoice")
		err = errors.Join(err, r.Write(under(t, 6), "second"))
		if late := fencemysql.Check(under(t, 5), tx, r.Name); err != nil || late != nil {
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
	err := invoice(t, db, "no table", sql.LevelReadCommitted).Write(under(t, 1), "")
	if failed, ok := errors.AsType[*mysql.MySQLError](err); !ok || failed.Number != 1146 {
		t.Errorf("without its table the guard returns %v", err)
	}
}
