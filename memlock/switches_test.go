package memlock_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestLose(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		var cause error
		req := request("x")
		req.OnLost = func(err error) {
			cause = err
			a.Traits()
			if _, err := a.List(t.Context(), driver.Query{}); err != nil { // the mutex is open
				t.Error(err)
			}
		}
		old := take(t, a, req)
		w := wait(b, request("x"))
		c.Lose("x")
		want(t, cause, driver.ErrLost)
		want(t, renew(a, old), driver.ErrNotHeld)
		want(t, a.Release(t.Context(), old), driver.ErrNotHeld)
		if !w.answered() || w.grant.Token <= old.Token {
			t.Errorf("the waiter got %+v, %v", w.grant, w.err)
		}
		c.Lose("unknown")
	})
}

func TestBreakNamesTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		var causes []error
		req := request("x")
		req.Mode = driver.Shared
		req.OnLost = func(err error) { causes = append(causes, err) }
		first, second := take(t, a, req), take(t, b, req)
		token, err := b.Break(t.Context(), "x", "maintenance at noon")
		if err != nil || token <= max(first.Token, second.Token) {
			t.Errorf("Break: %d, %v", token, err)
		}
		if len(causes) != 2 || !strings.Contains(causes[0].Error(), "maintenance at noon") {
			t.Errorf("Lost was told %v", causes)
		}
		_, err = b.Break(t.Context(), "x", "")
		want(t, err, driver.ErrNotHeld)
		_, err = b.Break(t.Context(), "", "")
		want(t, err, driver.ErrInvalid)
	})
}

// A waiter that was granted and does not know it is no holder yet: a break puts
// it back in line.
func TestBreakOfAnUnconfirmedGrant(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		w := wait(b, request("x"))
		b.Freeze()
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		token, err := c.Break(t.Context(), "x", "stuck")
		if err != nil {
			t.Fatal(err)
		}
		b.Thaw()
		if !w.answered() || w.err != nil || w.grant.Token <= token {
			t.Errorf("got %+v, %v, want a token above %d", w.grant, w.err, token)
		}
	})
}

func TestDelay(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		a.Delay(time.Minute)
		start := time.Now()
		g, err := a.Acquire(t.Context(), request("x"))
		if err != nil || time.Since(start) != time.Minute || g.Sent.Before(start) {
			t.Errorf("Acquire: %+v, %v after %v", g, err, time.Since(start))
		}
		take(t, b, request("y")) // b is as quick as ever
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = a.Release(ctx, leaseOf("x", g))
		want(t, err, driver.ErrUnavailable)
		want(t, err, context.DeadlineExceeded)
		a.Delay(0)
		if err := renew(a, leaseOf("x", g)); err != nil {
			t.Error(err)
		}
		if elapsed := time.Since(start); elapsed != time.Minute+time.Second {
			t.Errorf("took %v", elapsed)
		}
	})
}

func TestRefuse(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		w, next := wait(b, request("x")), wait(c, request("x"))
		a.Refuse(io.ErrUnexpectedEOF)
		b.Refuse(io.ErrUnexpectedEOF)
		if !w.answered() {
			t.Fatal("the wait of a refused client goes on")
		}
		for _, err := range []error{w.err, renew(a, held), a.Release(t.Context(), held)} {
			want(t, err, driver.ErrUnavailable)
			want(t, err, io.ErrUnexpectedEOF)
		}
		if s := only(t, c); len(s.Waiters) != 1 || s.Waiters[0].Position != 1 {
			t.Errorf("waiters: %+v", s.Waiters)
		}
		a.Refuse(nil)
		if err := a.Release(t.Context(), held); err != nil || !next.answered() || next.err != nil {
			t.Errorf("after the refusal: %v, %v", err, next.err)
		}
	})
}

func TestKill(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		req := request("x")
		req.OnLost = func(error) { t.Error("a killed client was told") }
		held := take(t, a, req)
		w, next := wait(b, request("x")), wait(c, request("x"))
		a.Kill()
		b.Freeze()
		b.Kill() // a stopped process can be killed
		want(t, renew(a, held), driver.ErrUnavailable)
		if !w.answered() {
			t.Fatal("the wait of a killed client goes on")
		}
		want(t, w.err, driver.ErrUnavailable)
		a.Refuse(nil)
		want(t, renew(a, held), driver.ErrUnavailable)
		start := time.Now()
		<-next.done
		if time.Since(start) != ttl || next.err != nil {
			t.Errorf("the name was free after %v, not %v: %v", time.Since(start), ttl, next.err)
		}
	})
}

// Nothing of a grant that its client did not live to see is left.
func TestKillBetweenGrantAndConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		req := request("x")
		req.MinHold = ttl
		w := wait(b, req)
		b.Freeze()
		if err := a.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		b.Kill()
		take(t, c, request("x"))
		if !w.answered() {
			t.Error("the wait of a killed client goes on")
		}
	})
}

func TestFreeze(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		var cause error
		req := request("x")
		req.OnLost = func(err error) { cause = err }
		held := take(t, a, req)
		a.Freeze()
		a.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		released := make(chan error, 1)
		go func() { released <- a.Release(ctx, held) }()
		time.Sleep(time.Minute)
		if _, err := b.Break(t.Context(), "x", "frozen"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(released) != 0 || cause != nil {
			t.Errorf("a frozen client acted: %v", cause)
		}
		a.Thaw()
		want(t, <-released, context.DeadlineExceeded)
		want(t, cause, driver.ErrLost)
	})
}

func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		first, second := wait(b, request("x")), wait(c, request("x"))
		b.Restart()
		if s := only(t, a); len(s.Holders) != 1 || s.Holders[0].Token != held.Token {
			t.Fatalf("after the restart: %+v", s)
		}
		if err := renew(a, held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := a.Release(t.Context(), held); err != nil || !first.answered() || second.answered() {
			t.Fatalf("the waiters did not join again in order: %v", err)
		}
		if first.grant.Token <= held.Token {
			t.Errorf("token %d after %d", first.grant.Token, held.Token)
		}
		second.cancel()
		<-second.done
	})
}

// A store that hangs is not one that says "held".
func TestHang(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("x"))
		waits, quits := wait(b, request("x")), wait(c, request("x"))
		a.Hang()
		a.Hang()
		late := wait(c, request("free"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := a.Release(ctx, held)
		want(t, err, driver.ErrUnavailable)
		want(t, err, context.DeadlineExceeded)
		late.cancel()
		quits.cancel()
		for _, w := range []*waiting{late, quits} {
			if !w.answered() || !errors.Is(w.err, driver.ErrUnavailable) || !errors.Is(w.err, context.Canceled) || errors.Is(w.err, driver.ErrHeld) {
				t.Errorf("a wait that ended meanwhile: %v", w.err)
			}
		}
		time.Sleep(2 * ttl)
		if waits.answered() {
			t.Fatalf("answered by a store that hangs: %v", waits.err)
		}
		a.Resume()
		a.Resume()
		if !waits.answered() || waits.err != nil {
			t.Errorf("after Resume: %v", waits.err)
		}
		if _, err := c.Acquire(t.Context(), request("free")); err != nil {
			t.Errorf("a wait that ended meanwhile left something behind: %v", err)
		}
	})
}
