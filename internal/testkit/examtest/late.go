package examtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
)

// Frozen returns the tokens of a holder whose process froze and of its successor. The first one
// cannot renew when it resumes.
func Frozen(t testing.TB, w drivertest.World) (earlier, later int64) {
	t.Helper()
	first, next := w.Client(t), w.Client(t)
	req := driver.Request{Name: "frozen", TTL: time.Second, Wait: true}
	g := acquire(t, first, req)
	first.Freeze(t)
	n := acquire(t, next, req)
	first.Thaw(t)
	lease := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL}
	if err := first.Renew(t.Context(), []driver.Lease{lease})[0]; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the holder renews after it was frozen: %v", err)
	}
	return g.Token, n.Token
}

// Broken returns the tokens of a holder whose lock was broken while it worked and of its successor.
func Broken(t testing.TB, w drivertest.World) (earlier, later int64) {
	t.Helper()
	first, next := w.Client(t), w.Client(t)
	req := driver.Request{Name: "broken", TTL: time.Minute, Wait: true}
	g := acquire(t, first, req)
	token, err := next.(driver.Breaker).Break(t.Context(), req.Name, "a test")
	if err != nil || token <= g.Token {
		t.Errorf("break: token %d after %d, %v", token, g.Token, err)
	}
	return g.Token, acquire(t, next, req).Token
}

func acquire(t testing.TB, e driver.Engine, req driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, err := e.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Name, err)
	}
	return g
}
