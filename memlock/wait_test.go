package memlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestGrantLapse(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held, other := take(t, a, request("x")), take(t, a, request("y"))
		frozen, behind := wait(b, request("x")), wait(c, request("x"))
		elsewhere, next := wait(b, request("y")), wait(c, request("y"))
		b.Freeze()
		start := time.Now()
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		<-behind.done
		if took := behind.at.Sub(start); took != 2*time.Second {
			t.Errorf("a frozen waiter cost %v", took)
		}
		if s, _ := a.List(t.Context(), driver.Query{Prefix: "x", Exact: true}); s[0].Waiters[0].Position != 0 {
			t.Errorf("a silent waiter is listed at place %d", s[0].Waiters[0].Position)
		}
		if err := a.Release(t.Context(), other); err != nil || !next.answered() {
			t.Fatalf("a silent client's other waiter was not passed over: %v", err)
		}
		b.Thaw()
		last := wait(a, request("x"))
		if frozen.answered() || elsewhere.answered() {
			t.Fatal("a thawed waiter holds what another holds")
		}
		if err := c.Release(t.Context(), leaseOf("x", behind.grant)); err != nil || !frozen.answered() || last.answered() {
			t.Errorf("the thawed waiter is not first in line: %v", err)
		}
		if frozen.grant.Token <= behind.grant.Token {
			t.Errorf("token %d after %d", frozen.grant.Token, behind.grant.Token)
		}
		elsewhere.cancel()
		last.cancel()
	})
}

func TestGrantAfterAWaitHasAFullLease(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		held := take(t, a, request("x"))
		w := wait(b, request("x"))
		time.Sleep(time.Minute)
		if err := a.Release(t.Context(), held); err != nil || !w.answered() {
			t.Fatal(err)
		}
		if !w.grant.Sent.Equal(time.Now()) || w.grant.TTL != ttl || w.grant.Floor != w.grant.Token {
			t.Errorf("got %+v", w.grant)
		}
		if s := only(t, a); s.Holders[0].TTL != ttl {
			t.Errorf("the lease runs for %v", s.Holders[0].TTL)
		}
		time.Sleep(ttl)
		want(t, renew(b, leaseOf("x", w.grant)), driver.ErrNotHeld)
	})
}

func TestCancelInTheInstantOfTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		w, next := wait(b, request("x")), wait(c, request("x"))
		b.Freeze() // so that both happen before it looks
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		w.cancel()
		synctest.Wait()
		b.Thaw()
		if !w.answered() || !errors.Is(w.err, driver.ErrHeld) {
			t.Errorf("got %v", w.err)
		}
		if !next.answered() || next.err != nil {
			t.Errorf("the next waiter got %v", next.err)
		}
	})
}

// Nobody is woken who does not want to be, and nothing that was not there is told.
func TestWaitingIsCalledOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		ahead := wait(b, request("x"))
		req := request("x")
		var told []driver.WaitInfo
		req.OnWait = func(i driver.WaitInfo) { told = append(told, i) }
		w := wait(c, req)
		c.Restart()
		ahead.cancel()
		synctest.Wait()
		if err := a.Release(t.Context(), held); err != nil || !w.answered() {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0].Position != 2 {
			t.Errorf("told %+v", told)
		}
	})
}

func TestACallbackThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		var lost []int
		for i := range 3 {
			req := request("x")
			req.Mode = driver.Shared
			req.OnLost = func(error) { lost = append(lost, i); panic("boom") }
			take(t, a, req)
		}
		req := request("x")
		req.Wait, req.OnWait = true, func(driver.WaitInfo) { panic("boom") }
		panics := func(what string, call func()) {
			defer func() {
				if recover() != "boom" {
					t.Errorf("%s: no panic", what)
				}
			}()
			call()
		}
		panics("Waiting", func() { _, _ = b.Acquire(t.Context(), req) })
		panics("Lost", func() { a.Lose("x") }) // only now: nobody waits for a free name
		if s := only(t, c); s != nil {
			t.Errorf("left behind: %+v", s)
		}
		if len(lost) != 3 {
			t.Errorf("%d of 3 holders were told", len(lost))
		}
	})
}

func TestMinHold(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		req := request("x")
		req.MinHold = 2 * ttl
		end := time.Now().Add(2 * ttl)
		held := take(t, a, req)
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		w := wait(b, request("x"))
		a.Restart()
		_, err := a.Acquire(t.Context(), request("x"))
		var e *driver.HeldError
		if !errors.As(err, &e) || !e.Until.Equal(end) {
			t.Errorf("got %v, want held until %v", err, end)
		}
		if s := only(t, a); !s.NotBefore.Equal(end) {
			t.Errorf("listed: %+v", s)
		}
		<-w.done
		if w.err != nil || !w.at.Equal(end) {
			t.Errorf("granted at %v, want %v: %v", w.at, end, w.err)
		}
	})
}

func TestMaxTTL(t *testing.T) {
	e := memlock.New(&memlock.Config{MaxTTL: time.Minute})
	_, err := e.Acquire(t.Context(), request("x"))
	want(t, err, driver.ErrInvalid)
	if got := e.Client().Traits().MaxTTL; got != time.Minute {
		t.Errorf("MaxTTL is %v", got)
	}
}
