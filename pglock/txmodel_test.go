//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// txModel says what two transactions should hold: name -> shared or exclusive.
type txModel struct {
	tx        pgx.Tx
	held      map[string]driver.Mode
	savepoint map[string]driver.Mode // held when the savepoint was set; nil means none
}

func (m *txModel) excludes(name string, mode driver.Mode) bool {
	have, ok := m.held[name]
	return ok && (have == driver.Exclusive || mode == driver.Exclusive)
}

func (m *txModel) take(name string, mode driver.Mode) {
	if have, ok := m.held[name]; !ok || have == driver.Shared {
		m.held[name] = mode
	}
}

func copyOf(held map[string]driver.Mode) map[string]driver.Mode {
	c := map[string]driver.Mode{}
	for name, mode := range held {
		c[name] = mode
	}
	return c
}

// Random tries, short waits, savepoints and ends of two transactions do what the
// model says.
func TestTxModel(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	conns := []*pgx.Conn{p.Connect(t), p.Connect(t)}
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		both := make([]*txModel, 2)
		begin := func(i int) {
			tx, err := conns[i].Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			both[i] = &txModel{tx: tx, held: map[string]driver.Mode{}}
		}
		begin(0)
		begin(1)
		defer func() {
			for _, m := range both {
				_ = m.tx.Rollback(ctx)
			}
		}()
		names := rapid.SampledFrom([]string{"a", "b", pglock.Key(1)})
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "who")
			me, other := both[i], both[1-i]
			switch op := rapid.SampledFrom([]string{"try", "try", "try", "wait", "savepoint", "rollback to", "commit", "rollback"}).Draw(t, "op"); op {
			case "try", "wait":
				name, mode := names.Draw(t, "name"), driver.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
				want := !other.excludes(name, mode)
				err := lockInModel(ctx, me.tx, op, name, mode)
				if (err == nil) != want || err != nil && !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("%s %s of %q by %d: %v, want a grant: %v", op, mode, name, i, err, want)
				}
				if want {
					me.take(name, mode)
				}
			case "savepoint":
				if _, err := me.tx.Exec(ctx, "SAVEPOINT mine"); err != nil {
					t.Fatal(err)
				}
				me.savepoint = copyOf(me.held)
			case "rollback to":
				if me.savepoint == nil {
					continue
				}
				if _, err := me.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT mine"); err != nil {
					t.Fatal(err)
				}
				me.held = copyOf(me.savepoint)
			default:
				end := me.tx.Commit
				if op == "rollback" {
					end = me.tx.Rollback
				}
				if err := end(ctx); err != nil {
					t.Fatal(err)
				}
				begin(i)
			}
		}
	})
}

func lockInModel(ctx context.Context, tx pgx.Tx, op, name string, mode driver.Mode) error {
	var o []pglock.TxOption
	if mode == driver.Shared {
		o = append(o, pglock.Shared)
	}
	if op == "try" {
		return pglock.TryLockTx(ctx, tx, name, o...)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	return ignoreEnded(pglock.LockTx(ctx, tx, name, o...), tx, name, o)
}

// ignoreEnded tries once more when a context of a few milliseconds had ended before
// the first statement could be sent.
func ignoreEnded(err error, tx pgx.Tx, name string, o []pglock.TxOption) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrHeld) {
		return pglock.TryLockTx(context.Background(), tx, name, o...)
	}
	return err
}

// Read, think, write under the lock, from many connections with deadlines of all
// lengths: no update is lost, and every transaction that gave up goes on, unless the
// server has not answered for as long as LockTx says.
func TestTxCounter(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 60
	p := pgtest.Database(t)
	p.Exec(t, "CREATE TABLE counter (n int)", "INSERT INTO counter VALUES (0)", "CREATE TABLE gaveup (n int)")
	var granted, gaveUp atomic.Int64
	var group sync.WaitGroup
	for range workers {
		conn := p.Connect(t)
		group.Go(func() { // ends with its rounds
			for range rounds {
				err := countOnce(t.Context(), conn, &granted, &gaveUp)
				if errors.Is(err, errSilent) {
					t.Log(err) // the machine stood still; the connection is closed, as LockTx says
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d granted, %d gave up", granted.Load(), gaveUp.Load())
	if got, want := p.Query(t, "SELECT n FROM counter"), fmt.Sprint(granted.Load()); got != want {
		t.Errorf("the counter is %s after %s grants", got, want)
	}
	if got, want := p.Query(t, "SELECT count(*) FROM gaveup"), fmt.Sprint(gaveUp.Load()); got != want {
		t.Errorf("%s transactions went on, %s gave up", got, want)
	}
}

// errSilent is a server that did not answer for a long time.
var errSilent = errors.New("the server is silent")

func countOnce(ctx context.Context, conn *pgx.Conn, granted, gaveUp *atomic.Int64) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+rand.IntN(40))*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := pglock.LockTx(limited, tx, "counter")
		if conn.IsClosed() && time.Since(begun) > pglock.TxGrace {
			return fmt.Errorf("%w: %w", errSilent, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			gaveUp.Add(1)
			_, err = tx.Exec(ctx, "INSERT INTO gaveup VALUES (1)")
			return err
		}
		if err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // others must wait meanwhile
		if _, err := tx.Exec(ctx, "UPDATE counter SET n = $1", n+1); err != nil {
			return err
		}
		granted.Add(1)
		return nil
	})
}

// A grant and a polite cancel at about the same time: either LockTx has the lock, or
// it does not and the transaction goes on without it.
func TestTxGrantMeetsCancel(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	config, err := pgx.ParseConfig(p.DSN())
	must(t, err)
	config.BuildContextWatcherHandler = politely
	holder, look := p.Connect(t), p.Connect(t)
	var granted, cancelled int
	for range 40 {
		// pgx does not know when the server has passed a cancel on: late, it would
		// meet the next round, were that on the same connection.
		conn, err := pgx.ConnectConfig(t.Context(), config)
		must(t, err)
		if grantMeetsCancel(t, p, conn, holder, look) {
			granted++
		} else {
			cancelled++
		}
	}
	t.Logf("%d granted, %d cancelled", granted, cancelled)
}

func grantMeetsCancel(t *testing.T, p *pgtest.Postgres, conn, holder, look *pgx.Conn) (granted bool) {
	defer closeSoon(conn)
	mustExec(t, holder, "SELECT pg_advisory_lock(hashtextextended('job', 0))")
	tx, err := conn.Begin(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- pglock.LockTx(ctx, tx, "job") }()
	awaitWaiters(t, p, 1)
	stop := time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	mustExec(t, holder, "SELECT pg_advisory_unlock_all()")
	err = <-done
	stop.Stop()
	var free bool
	must(t, look.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(hashtextextended('job', 0))").Scan(&free))
	mustExec(t, look, "SELECT pg_advisory_unlock_all()")
	gaveUp := errors.Is(err, driver.ErrHeld) && errors.Is(err, context.Canceled)
	if err != nil && !gaveUp || free == (err == nil) {
		t.Fatalf("LockTx: %v, and the lock is free: %v", err, free)
	}
	mustCommit(t, tx)
	return err == nil
}

func mustCommit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	var one int
	must(t, tx.QueryRow(t.Context(), "SELECT 1").Scan(&one), tx.Commit(t.Context()))
}
