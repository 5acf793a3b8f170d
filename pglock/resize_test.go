//go:build unix

package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// still fails the test if a waiter was granted.
func still(t testing.TB, w <-chan wait, what string) {
	t.Helper()
	select {
	case got := <-w:
		t.Fatalf("%s: %+v", what, got)
	case <-time.After(400 * time.Millisecond): // a few looks of one who waits
	}
}

// TestResizeLasts: a limit that was set survives a crash at once, whatever the
// server's settings.
func TestResizeLasts(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	e := engine(t, pg.DSN(), short)
	for _, limit := range []int{7, 1} {
		if err := e.Resize(t.Context(), "r", limit); err != nil {
			t.Fatal(err)
		}
	}
	pg.Kill(t)
	pg.Restart(t)
	req := shared(shortRequest("r"), 5)
	stop := beat(t, e, regained(t, e, req))
	refused(t, e, req)
	stop()
}

func TestResizeRefusesWhatTheServerCannotStore(t *testing.T) {
	t.Parallel()
	e := engine(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable", nil)
	if err := e.Resize(t.Context(), "r", 1<<31); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	if _, err := e.Acquire(t.Context(), shared(request("r"), 1<<31)); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}
