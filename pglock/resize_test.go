//go:build unix

package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// weighing is a shared request that takes so much of a limit.
func weighing(name string, limit, weight int) driver.Request {
	req := shared(request(name), limit)
	req.Weight, req.TTL = weight, 30*time.Second
	return req
}

// still fails the test if a waiter was granted.
func still(t testing.TB, w <-chan wait, what string) {
	t.Helper()
	select {
	case got := <-w:
		t.Fatalf("%s: %+v", what, got)
	case <-time.After(400 * time.Millisecond): // a few looks of one who waits
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	six := try(t, a, weighing("w", 10, 6))
	refused(t, b, weighing("w", 10, 5))
	four := try(t, b, weighing("w", 10, 4))
	refused(t, c, weighing("w", 10, 0))
	heavy := queueUp(t, t.Context(), c, weighing("w", 10, 7))
	release(t, b, four)
	still(t, heavy, "6 and 7 of 10")
	refused(t, a, weighing("w", 10, 1))
	refused(t, b, weighing("w", 10, 1))
	light := queueUp(t, t.Context(), b, weighing("w", 10, 2))
	still(t, light, "a light one passed the heavy head")
	list, err := a.List(t.Context(), driver.Query{Prefix: "w", Exact: true})
	if err != nil || len(list) != 1 || len(list[0].Holders) != 1 || len(list[0].Waiters) != 2 {
		t.Fatalf("List: %+v, %v", list, err)
	}
	if s := list[0]; s.Limit != 10 || s.Holders[0].Weight != 6 || s.Waiters[0].Weight != 7 || s.Waiters[1].Weight != 2 {
		t.Errorf("List: %+v", s)
	}
	release(t, a, six)
	release(t, c, granted(t, heavy))
	release(t, b, granted(t, light))
}

func TestResize(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	resize := func(limit int) {
		t.Helper()
		if err := a.Resize(t.Context(), "r", limit); err != nil {
			t.Fatal(err)
		}
	}
	one, two := try(t, a, weighing("r", 2, 0)), try(t, b, weighing("r", 2, 0))
	w := queueUp(t, t.Context(), c, weighing("r", 2, 0))
	late := queueUp(t, t.Context(), b, weighing("r", 2, 0))
	still(t, w, "3 of 2")
	begun := time.Now()
	resize(4)
	three, four := granted(t, w), granted(t, late)
	t.Logf("the waiters were granted %v after the start of a Resize", time.Since(begun))
	if list, err := c.List(t.Context(), driver.Query{Prefix: "r", Exact: true}); err != nil || len(list) != 1 || list[0].Limit != 4 {
		t.Errorf("List: %+v, %v", list, err)
	}
	if _, err := c.Acquire(t.Context(), shared(request("r"), 0)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no limit beside one that was resized: %v", err)
	}
	resize(1)
	for _, l := range []driver.Lease{two, three, four} {
		if err := renew(map[string]driver.Engine{two.Owner: b, three.Owner: c, four.Owner: b}[l.Owner], l); err != nil {
			t.Errorf("a holder of more than the limit: %v", err)
		}
	}
	release(t, b, two)
	release(t, c, three)
	release(t, b, four)
	heavy := queueUp(t, t.Context(), b, weighing("r", 9, 5)) // another limit is no error now
	still(t, heavy, "beside another one")
	release(t, a, one)
	alone := granted(t, heavy)
	refused(t, c, weighing("r", 100, 1))
	release(t, b, alone)
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
