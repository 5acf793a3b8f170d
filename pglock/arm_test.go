//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
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
	l := try(t, e, request("a"))
	ctx, cancel := context.WithCancel(t.Context())
	w := queueUp(t, ctx, other, request("a"))
	eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	cancel()
	if err := (<-w).err; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", err)
	}
	release(t, e, l)
	eventually(t, "nobody is armed", func() bool { return pg.Query(t, armed) == "0" })
	eventually(t, "no mark is left", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE objsubid = 2 AND classid IN (1717923431, 1717923432)") == "0"
	})
}

// TestArmedWaiterHasItsToken: it is minted while the request waits, after the one of
// the holder before it.
func TestArmedWaiterHasItsToken(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	w := queueUp(t, t.Context(), other, request("a"))
	eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	later := try(t, e, request("b"))
	release(t, e, l)
	next := granted(t, w)
	if next.Token <= l.Token || next.Token >= later.Token {
		t.Errorf("the holder had token %d, the waiter %d; another name's, taken meanwhile, is %d", l.Token, next.Token, later.Token)
	}
	release(t, other, next)
}

// TestArmedWaiterBehindABreak: the token that was minted for it is older than the
// break's, and so is not its token.
func TestArmedWaiterBehindABreak(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	try(t, e, request("a"))
	w := queueUp(t, t.Context(), other, request("a"))
	eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
	token, err := engine(t, pg.DSN(), nil).Break(t.Context(), "a", "a test")
	if err != nil {
		t.Fatal(err)
	}
	l := granted(t, w)
	if l.Token <= token {
		t.Errorf("token %d after the break's %d", l.Token, token)
	}
	if err := renew(other, l); err != nil {
		t.Error(err)
	}
	release(t, other, l)
}

// TestBreakThatOneProcessHearsOf: either the holder's, or the waiter's while its holder
// lets go by itself.
func TestBreakThatOneProcessHearsOf(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	for _, byWaiter := range []bool{false, true} {
		l := try(t, e, request("a"))
		w := queueUp(t, t.Context(), other, request("a"))
		eventually(t, "the waiter is armed", func() bool { return pg.Query(t, armed) == "1" })
		later := try(t, e, request("b"))
		if byWaiter {
			other.HearBreak("a", later.Token)
			release(t, e, l)
		} else {
			e.HearBreak("a", later.Token)
		}
		l = granted(t, w)
		if l.Token <= later.Token {
			t.Errorf("token %d after the break's %d, of which the waiter's process heard: %t", l.Token, later.Token, byWaiter)
		}
		release(t, other, l)
		release(t, e, later)
		eventually(t, "nobody is armed", func() bool { return pg.Query(t, armed) == "0" })
	}
}

// TestBusyHolderIsNoneToComeAfter: the server process of a holder that is at work may
// not have minted its token yet.
func TestBusyHolderIsNoneToComeAfter(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	w := queueUp(t, t.Context(), other, request("a"))
	foreseen := func() bool {
		return pg.Query(t, "SELECT fencelock.ahead(hashtextextended('a', 0), 1, 7, pid) <> 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == "true"
	}
	eventually(t, "the holder is seen", foreseen)
	wake := e.Sleep(l)
	eventually(t, "the server sleeps", func() bool { return backends(t, pg, "state = 'active' AND query LIKE '%pg_sleep%'") == "1" })
	if foreseen() {
		t.Error("a waiter has a token of before its holder's statement was done")
	}
	if err := wake(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the holder is seen again", foreseen)
	release(t, e, l)
	release(t, other, granted(t, w))
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

// TestMarksOfKeys: keys that an application makes of two integers do not share their
// marks.
func TestMarksOfKeys(t *testing.T) {
	seen := map[int32]int64{}
	for high := range int64(100) {
		for low := range int64(100) {
			key := high<<32 | low
			if other, ok := seen[pglock.MarkOfKey(key)]; ok {
				t.Errorf("%x and %x have the same mark", key, other)
			}
			seen[pglock.MarkOfKey(key)] = key
		}
	}
}
