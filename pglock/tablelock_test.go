//go:build unix

package pglock_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
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
			pg := pgtest.StartPostgres(t)
			e := engine(t, pg.DSN(), nil)
			locks := fencelock.New(e, &fencelock.Config{TTL: 3 * time.Second})
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
