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
)

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
