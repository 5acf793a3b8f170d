package memlock_test

import (
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
