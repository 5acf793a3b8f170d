//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestChainOfWaiters: processes that wait for one name get it in the order in which they came.
func TestChainOfWaiters(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	req := request("chain")
	first := engine(t, pg.DSN(), nil)
	l := try(t, first, req)
	stop := beat(t, first, l)
	var engines []*pglock.Engine
	var waits []<-chan wait
	for range 12 {
		e := engine(t, pg.DSN(), nil)
		engines, waits = append(engines, e), append(waits, queueUp(t, t.Context(), e, req))
	}
	stop()
	release(t, first, l)
	for i, w := range waits {
		next := granted(t, w)
		if next.Token <= l.Token {
			t.Errorf("waiter %d has token %d after %d", i, next.Token, l.Token)
		}
		l = next
		release(t, engines[i], l)
	}
}

// TestPairsKeepTheirOrder: of two processes that come one after the other the first gets the
// name first.
func TestPairsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	holder, first, second := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("pair")
	for i := range slow(256, 8) {
		l := try(t, holder, req)
		one, two := queueUp(t, t.Context(), first, req), queueUp(t, t.Context(), second, req)
		release(t, holder, l)
		l = granted(t, one)
		if len(two) > 0 {
			t.Errorf("pair %d: the second one came in", i)
		}
		release(t, first, l)
		release(t, second, granted(t, two))
	}
}

// TestHotNameStaysFast: what a turn of a name costs does not grow with the turns before it,
// nor does what is stored for it.
func TestHotNameStaysFast(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(driver.Request) driver.Request{
		"exclusive": func(r driver.Request) driver.Request { return r },
		"shared":    func(r driver.Request) driver.Request { return shared(r, 0) },
		"permit":    func(r driver.Request) driver.Request { return shared(r, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			pg := pgtest.StartPostgres(t)
			e := engine(t, pg.DSN(), nil)
			req := mode(request("hot"))
			fifths(t, slow(100_000, 200), func() time.Duration {
				begun := time.Now()
				release(t, e, try(t, e, req))
				return time.Since(begun)
			})
			if pages := number(t, pg, "SELECT pg_relation_size('fencelock.held') / 8192"); pages > 50 {
				t.Errorf("%d pages for one name", pages)
			}
		})
	}
	t.Run("handed over", func(t *testing.T) {
		pg := pgtest.StartPostgres(t)
		one, two := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
		req := request("hot")
		l := try(t, one, req)
		fifths(t, slow(10_000, 50), func() time.Duration {
			w := queueUp(t, context.Background(), two, req)
			begun := time.Now()
			release(t, one, l)
			l = granted(t, w)
			one, two = two, one
			return time.Since(begun)
		})
	})
}

// slow returns how much of something is done when there is time, and otherwise.
func slow(much, little int) int {
	if os.Getenv("FENCELOCK_SLOW") != "" {
		return much
	}
	return little
}

// fifths does something n times, and compares the medians of the first and the last fifth.
func fifths(t *testing.T, n int, do func() time.Duration) {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		took[i] = do()
	}
	first, last := median(took[:n/5]), median(took[n-n/5:])
	t.Logf("a turn takes %v at first and %v at last: %s", first, last, fmt.Sprintf("%.2f x", float64(last)/float64(first)))
	if n > 1000 && last > 3*first { // 1.3 on a machine that does nothing else
		t.Errorf("a turn takes %v at first and %v at last", first, last)
	}
}
