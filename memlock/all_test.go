package memlock_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// nothing fails the test if a name is held or waited for.
func nothing(t *testing.T, e *memlock.Engine) {
	t.Helper()
	if list, err := e.List(t.Context(), driver.Query{}); err != nil || len(list) > 0 {
		t.Errorf("left behind: %+v, %v", list, err)
	}
}

func TestAcquireAllGrantsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		start := time.Now()
		grants, err := a.AcquireAll(t.Context(), []driver.Request{request("y"), request("x")})
		if err != nil || len(grants) != 2 {
			t.Fatalf("AcquireAll: %+v, %v", grants, err)
		}
		for i, name := range []string{"y", "x"} {
			g := grants[i]
			if g.Sent != start || g.TTL != ttl || g.Floor != g.Token {
				t.Errorf("%s: %+v", name, g)
			}
			want(t, renew(b, leaseOf(name, g)), nil)
			want(t, b.Release(t.Context(), leaseOf(name, g)), nil)
		}
		nothing(t, b)
	})
}

// Each lease ends by itself, and lets in who waits for that name.
func TestAcquireAllExpires(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		grants, err := a.AcquireAll(t.Context(), []driver.Request{request("x"), request("y")})
		if err != nil {
			t.Fatal(err)
		}
		first, second := wait(b, request("x")), wait(c, request("y"))
		time.Sleep(ttl / 2)
		want(t, renew(a, leaseOf("y", grants[1])), nil)
		time.Sleep(ttl / 2)
		if !first.answered() || second.answered() {
			t.Errorf("after a TTL: x passed on %v, y passed on %v", first.answered(), second.answered())
		}
		<-second.done
	})
}

// Weights and limits count for names together as for one.
func TestAcquireAllWeighs(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		other := seats(3, 2)
		other.Name = "y"
		reqs := []driver.Request{other, seats(3, 2)}
		held := take(t, a, seats(3, 2))
		_, err := b.AcquireAll(t.Context(), reqs)
		want(t, err, driver.ErrHeld)
		resize(t, c, 4)
		if _, err := b.AcquireAll(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		_, err = c.AcquireAll(t.Context(), []driver.Request{request("z"), other})
		want(t, err, driver.ErrHeld)
		take(t, c, request("z")) // nothing of it was left held
		other.Limit = 5
		_, err = c.Acquire(t.Context(), other)
		want(t, err, driver.ErrInvalid)
		_, err = c.AcquireAll(t.Context(), []driver.Request{request("w"), other})
		want(t, err, driver.ErrInvalid)
		take(t, c, request("w"))
		want(t, a.Release(t.Context(), held), nil)
	})
}

// A minimum hold keeps names together out as it keeps one out.
func TestAcquireAllDuringAMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		req := request("y")
		req.MinHold = time.Minute
		want(t, a.Release(t.Context(), take(t, a, req)), nil)
		reqs := []driver.Request{request("x"), request("y")}
		_, err := b.AcquireAll(t.Context(), reqs)
		want(t, err, driver.ErrHeld)
		take(t, a, request("x"))
		time.Sleep(time.Minute)
		if _, err := b.AcquireAll(t.Context(), []driver.Request{request("z"), request("y")}); err != nil {
			t.Error(err)
		}
	})
}

// What a refused, cancelled or killed client asked for is not held.
func TestAcquireAllRefused(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		reqs := []driver.Request{request("x"), request("y")}
		a.Refuse(io.ErrUnexpectedEOF)
		_, err := a.AcquireAll(t.Context(), reqs)
		want(t, err, driver.ErrUnavailable)
		want(t, err, io.ErrUnexpectedEOF)
		a.Refuse(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.AcquireAll(ctx, reqs)
		want(t, err, context.Canceled)
		_, err = a.AcquireAll(t.Context(), append(reqs, driver.Request{Name: "z"}))
		want(t, err, driver.ErrInvalid)
		a.Freeze()
		done := make(chan error, 1)
		go func() { // ends with the kill
			_, err := a.AcquireAll(context.Background(), reqs)
			done <- err
		}()
		synctest.Wait()
		nothing(t, b)
		a.Kill()
		want(t, <-done, driver.ErrUnavailable)
		nothing(t, c)
	})
}

// Whoever watches is told of each name.
func TestAcquireAllIsWatched(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []string
		done := make(chan error, 1)
		go func() { // ends with ctx
			done <- b.Watch(ctx, driver.Query{}, func(e driver.Event) error {
				told = append(told, string(e.Kind)+" "+e.Name)
				return nil
			})
		}()
		synctest.Wait()
		if _, err := a.AcquireAll(t.Context(), []driver.Request{request("x"), request("y")}); err != nil {
			t.Fatal(err)
		}
		_, err := a.AcquireAll(t.Context(), []driver.Request{request("z"), request("y")})
		want(t, err, driver.ErrHeld)
		synctest.Wait()
		cancel()
		<-done
		if len(told) != 2 || told[0] != "acquired x" || told[1] != "acquired y" {
			t.Errorf("told: %q", told)
		}
	})
}
