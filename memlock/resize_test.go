package memlock_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// seats asks for a weight of a limit.
func seats(limit, weight int) driver.Request {
	req := request("x")
	req.Mode, req.Limit, req.Weight = driver.Shared, limit, weight
	return req
}

func resize(t *testing.T, e *memlock.Engine, limit int) {
	t.Helper()
	if err := e.Resize(t.Context(), "x", limit); err != nil {
		t.Fatal(err)
	}
}

// weights returns what the holders and the waiters of the only name weigh.
func weights(t *testing.T, e *memlock.Engine) (holders, waiters []int) {
	t.Helper()
	synctest.Wait()
	s := only(t, e)
	if s == nil {
		return nil, nil
	}
	for _, h := range s.Holders {
		holders = append(holders, h.Weight)
	}
	for _, w := range s.Waiters {
		waiters = append(waiters, w.Weight)
	}
	return holders, waiters
}

// The units of a lease come back when it ends, and let in as many as fit.
func TestUnitsOfAnExpiredLease(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		take(t, a, seats(3, 3))
		a.Kill()
		start := time.Now()
		first, second, third := wait(b, seats(3, 2)), wait(b, seats(3, 1)), wait(c, seats(3, 1))
		<-first.done
		<-second.done
		if took := time.Since(start); took != ttl || third.answered() {
			t.Errorf("two waiters were let in after %v, not %v, and a third: %v", took, ttl, third.answered())
		}
		if holders, waiters := weights(t, c); !slices.Equal(holders, []int{2, 1}) || !slices.Equal(waiters, []int{1}) {
			t.Errorf("holders of %v, waiters of %v", holders, waiters)
		}
		third.cancel()
		<-third.done
	})
}

// A heavy grant that its frozen client does not take is worth as much as one
// that is held, until it passes to those who come next.
func TestUnitsOfAnUnconfirmedGrant(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, seats(4, 4))
		heavy, light := wait(b, seats(4, 3)), wait(c, seats(4, 2))
		b.Freeze()
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if light.answered() {
			t.Fatal("a light waiter got in beside a grant that leaves no room for it")
		}
		resize(t, a, 5)
		if !light.answered() {
			t.Fatal("a light waiter did not get in when there was room")
		}
		time.Sleep(time.Minute)
		if holders, waiters := weights(t, c); !slices.Equal(holders, []int{2}) || !slices.Equal(waiters, []int{3}) {
			t.Errorf("after the grant lapsed: holders of %v, waiters of %v", holders, waiters)
		}
		b.Thaw()
		if !heavy.answered() || heavy.err != nil {
			t.Errorf("the thawed waiter: %v", heavy.err)
		}
	})
}

// An exclusive waiter at the head is passed by nobody when the limit grows.
func TestResizeBehindAnExclusiveWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, seats(1, 1))
		writer, reader := wait(b, request("x")), wait(c, seats(1, 1))
		resize(t, a, 9)
		if writer.answered() || reader.answered() {
			t.Fatal("a higher limit let somebody pass an exclusive waiter")
		}
		if err := a.Release(t.Context(), held); err != nil || !writer.answered() || reader.answered() {
			t.Fatalf("the exclusive waiter was not next: %v", err)
		}
		if err := b.Release(t.Context(), leaseOf("x", writer.grant)); err != nil || !reader.answered() {
			t.Errorf("the shared waiter was not the one after: %v", err)
		}
	})
}

// The limit is the store's: it outlives Lose, Break, Restart and its client.
func TestResizeOutlivesAll(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		resize(t, a, 1)
		nothing(t, a) // a limit that is remembered is no lock
		a.Kill()
		take(t, b, seats(5, 1))
		if _, err := c.Break(t.Context(), "x", "stuck"); err != nil {
			t.Fatal(err)
		}
		take(t, b, seats(5, 1))
		c.Lose("x")
		c.Restart()
		take(t, b, seats(5, 1))
		_, err := c.Acquire(t.Context(), seats(5, 1))
		want(t, err, driver.ErrHeld)
		if s := only(t, c); s.Limit != 1 {
			t.Errorf("the limit in force is %d", s.Limit)
		}
	})
}

func TestResizeRefused(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		take(t, b, seats(1, 1))
		a.Refuse(io.ErrUnexpectedEOF)
		want(t, a.Resize(t.Context(), "x", 2), io.ErrUnexpectedEOF)
		a.Refuse(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, a.Resize(ctx, "x", 2), driver.ErrUnavailable)
		want(t, a.Resize(t.Context(), "x", 0), driver.ErrInvalid)
		_, err := b.Acquire(t.Context(), seats(1, 1))
		want(t, err, driver.ErrHeld)
	})
}

// nothing fails the test if a name is held or waited for.
func nothing(t *testing.T, e *memlock.Engine) {
	t.Helper()
	if list, err := e.List(t.Context(), driver.Query{}); err != nil || len(list) > 0 {
		t.Errorf("left behind: %+v, %v", list, err)
	}
}
