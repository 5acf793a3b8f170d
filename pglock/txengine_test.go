//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// Locks of an engine and of transactions are the same locks, for names and keys.
func TestTxMeetsEngine(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	bothDrivers(t, p, func(t *testing.T, begin func(string) txn) {
		e := engine(t, p.DSN(), nil)
		for _, name := range []string{"größe 🔒", pglock.Key(-7)} {
			lease := try(t, e, request(name))
			tx := begin("")
			wantHeld(t, tx.try(t.Context(), name), name, nil)
			err := tx.lock(soon(t, 500*time.Millisecond), name)
			if wantHeld(t, err, name, context.DeadlineExceeded); err != nil && !strings.Contains(err.Error(), "fencelock") {
				t.Errorf("%v does not name the engine's connection", err)
			}
			wantHeld(t, tx.try(t.Context(), name, pglock.Shared), name, nil)
			done := make(chan error, 1)
			go func() { done <- tx.lock(soon(t, patience), name) }()
			awaitWaiters(t, p, 1)
			must(t, e.Release(t.Context(), lease), <-done)

			refused(t, e, request(name))
			refused(t, e, shared(request(name), 0))
			must(t, tx.end(true))
			must(t, e.Release(t.Context(), try(t, e, request(name))))

			// Shared with shared.
			lease = try(t, e, shared(request(name), 0))
			tx = begin("")
			must(t, tx.try(t.Context(), name, pglock.Shared))
			wantHeld(t, begin("").try(t.Context(), name), name, nil)
			must(t, tx.end(true), e.Release(t.Context(), lease))
		}
	})
}

// A waiting engine gets the lock when the transaction ends, and not before.
func TestTxHandsOverToEngine(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	e := engine(t, p.DSN(), nil)
	tx := beginPgx(t, p.DSN(), "")
	must(t, tx.lock(t.Context(), "job"))
	done := queueUp(t, t.Context(), e, request("job"))
	awaitWaiters(t, p, 1)
	still(t, done, "the engine did not wait")
	must(t, tx.end(true))
	stop := beat(t, e, granted(t, done))
	defer stop()
	err := beginPgx(t, p.DSN(), "").lock(soon(t, 500*time.Millisecond), "job")
	if !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the engine to hold it", err)
	}
}
