//go:build unix

package pglock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
)

const armed = "SELECT count(*) FROM pg_locks WHERE objsubid = 2 AND classid = 1717923433"

// early fails the test if a waiter is granted long before a lease is over.
func early(t *testing.T, w <-chan wait, end time.Time) driver.Lease {
	t.Helper()
	l := granted(t, w)
	if left := time.Until(end); left > l.TTL/2 {
		t.Errorf("the waiter got in %v before the lease of a vanished holder was over", left)
	}
	return l
}

// TestArmedWaiter: one who waits longer than a moment knows in advance whom it
// comes after, and nothing of that is left behind.
func TestArmedWaiter(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	for range 3 {
		l := try(t, e, request("a"))
		w := queueUp(t, t.Context(), other, request("a"))
		eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
		release(t, e, l)
		release(t, other, granted(t, w))
		eventually(t, "nobody is armed", func() bool { return pg.Query(t, armed) == "0" })
	}
	eventually(t, "no mark is left", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE objsubid = 2 AND classid IN (1717923431, 1717923432)") == "0"
	})
}

func TestArmedWaiterBehindAVanishedHolder(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	end := time.Now().Add(l.TTL)
	w := queueUp(t, t.Context(), other, request("a"))
	eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	pg.Terminate(t, holder(t, pg, "a"))
	release(t, other, early(t, w, end))
}

func TestArmedWaiterBehindAMinimumHold(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("a")
	req.AtLeast = 3 * time.Second
	end := time.Now().Add(req.AtLeast)
	l := try(t, e, req)
	w := queueUp(t, t.Context(), other, request("a"))
	eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	release(t, e, l)
	l = granted(t, w)
	if left := time.Until(end); left > 0 {
		t.Errorf("the waiter got in %v before the minimum hold was over", left)
	}
	release(t, other, l)
}

// TestWaiterBehindAVanishedHolderBehindASlowRelease: the mark of a holder that is
// slow to delete its row says nothing about the next one, who vanished.
func TestWaiterBehindAVanishedHolderBehindASlowRelease(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	first := try(t, a, request("a"))
	defer pin(t, pg, first)()
	release(t, a, first)
	second := try(t, b, request("a"))
	end := time.Now().Add(second.TTL)
	pin(t, pg, second)()
	w := queueUp(t, t.Context(), c, request("a"))
	time.Sleep(300 * time.Millisecond) // it would be armed by now
	pg.Terminate(t, holder(t, pg, "a"))
	release(t, c, early(t, w, end))
}

// TestOnlyTheNextWaiterIsArmed: one who has others before it cannot know yet.
func TestOnlyTheNextWaiterIsArmed(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	first := try(t, a, request("a"))
	next := queueUp(t, t.Context(), b, request("a"))
	last := queueUp(t, t.Context(), c, request("a"))
	eventually(t, "one waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	time.Sleep(300 * time.Millisecond) // the other one has tried
	if n := pg.Query(t, armed); n != "1" {
		t.Errorf("%s waiters are armed", n)
	}
	release(t, a, first)
	second := granted(t, next)
	eventually(t, "the last one is armed", func() bool { return pg.Query(t, armed) == "1" })
	end := time.Now().Add(second.TTL)
	pin(t, pg, second)()
	pg.Terminate(t, holder(t, pg, "a"))
	release(t, c, early(t, last, end))
}
