//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestManyRequestsBesideATableLock: while somebody rewrites a table, requests that wait for it
// cost no lock that is held by the same connection.
func TestManyRequestsBesideATableLock(t *testing.T) {
	t.Parallel()
	d, tables := 5*time.Second, []string{"held", "minimum"}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		d, tables = time.Minute, []string{"held", "sharer", "queued", "minimum", "resized", "record", "rate", "epoch"}
	}
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.Database(t)
			e := engine(t, pg.DSN(), nil)
			locks := fencelock.New(e, nil).With(fencelock.Options{TTL: 3 * time.Second})
			lock, err := locks.Acquire(t.Context(), "held")
			if err != nil {
				t.Fatal(err)
			}
			tx, err := pg.Connect(t).Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), "LOCK TABLE fencelock."+table+" IN ACCESS EXCLUSIVE MODE")
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx := soon(t, d)
			var asking sync.WaitGroup
			for i := range 40 {
				asking.Go(func() { // ends with ctx
					for ctx.Err() == nil {
						if l, err := locks.Acquire(ctx, fmt.Sprint("other", i)); err == nil {
							_ = l.Release() // the lock on a table may be in the way
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			asking.Wait()
			if err := lock.Err(); err != nil {
				t.Error(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWaiterThatCannotBeUnlisted: the row of a request that gave up while somebody had locked the
// table is removed when the table is free again.
func TestWaiterThatCannotBeUnlisted(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := queueUp(t, ctx, e, request("a"))
	eventually(t, "the waiter is listed", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.queued") == "1" })
	tx, err := pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "LOCK TABLE fencelock.queued IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	giveUp()
	await(t, done, "the waiter gives up")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the waiter is gone from the list", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.queued") == "0" })
	release(t, e, l)
}

// TestBreakOfAPreparedTransaction: no process can be ended for it, so the advice is another.
func TestBreakOfAPreparedTransaction(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_prepared_transactions=2")
	e := engine(t, pg.DSN(), &pglock.Config{BreakWait: 100 * time.Millisecond, ForceBreak: true})
	release(t, e, try(t, e, request("a")))
	pg.Exec(t, "BEGIN", "SELECT pg_advisory_xact_lock(hashtextextended('a', 0))", "PREPARE TRANSACTION 'mine'")
	_, err := e.Break(t.Context(), "a", "test")
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("got %v", err)
	}
	pg.Exec(t, "ROLLBACK PREPARED 'mine'")
	release(t, e, try(t, e, request("a")))
}
