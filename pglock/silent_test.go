//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
)

// TestSilentServerIsNotBusy: requests of one process that are in one another's way, while the
// server does not answer, say that it is unavailable, and not that the name is held.
func TestSilentServerIsNotBusy(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	pg.Freeze(t)
	defer pg.Thaw(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req := request("a")
	req.Wait = true
	waits := make(chan error)
	const n = 3
	for range n {
		go func() { // ends with ctx
			_, err := e.Acquire(ctx, req)
			waits <- err
		}()
	}
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := e.Acquire(soon, request("a"))
		cancel()
		unavailable(t, "a try", err)
	}
	for range n {
		unavailable(t, "a wait", await(t, waits, "the end of a wait"))
	}
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Errorf("%s of a server that does not answer: got %v, want ErrUnavailable and not ErrHeld", what, err)
	}
}
