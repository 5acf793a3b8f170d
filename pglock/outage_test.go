//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestOutageCostsOneDial: the server is silent, and the first call has failed. Each of a hundred
// concurrent calls that do not wait then fails after one or two attempts to connect, of ten seconds
// each, not four. Calls that wait end with their contexts.
func TestOutageCostsOneDial(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), &pglock.Config{Timeout: time.Second})
	release(t, e, try(t, e, request("before")))
	pg.Freeze(t)
	defer pg.Thaw(t)
	_, err := e.Acquire(t.Context(), request("first"))
	unavailable(t, "the first call", err)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			req, ctx := request(fmt.Sprint("n", i/2)), ctx
			if req.Wait = i%4 == 0; !req.Wait {
				ctx = t.Context()
			}
			_, err := e.Acquire(ctx, req)
			unavailable(t, fmt.Sprint("call ", i), err)
		})
	}
	all.Wait()
	took := time.Since(begun)
	t.Logf("the last call failed after %v", took)
	if took > 35*time.Second { // 20 s on a machine that has time
		t.Errorf("the last call failed after %v", took)
	}
}
