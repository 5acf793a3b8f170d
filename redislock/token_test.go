package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// rising fails the test unless every acquisition has a greater token than the one
// before it, whichever way it comes about.
type rising struct {
	scene
	last int64
}

func (r *rising) next(h hold) hold {
	r.Helper()
	if h.Token <= r.last || h.Floor != h.Token {
		r.Fatalf("token %d with floor %d after %d", h.Token, h.Floor, r.last)
	}
	r.last = h.Token
	return h
}

// TestTokensAfterAClockStep: the remembered token is ahead of the server's clock,
// as after a step back. Tokens go on from there, digit by digit, and the memory
// outlives the step.
func TestTokensAfterAClockStep(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	ahead := time.Now().Add(100 * 24 * time.Hour).UnixMicro()
	s.server.Do(t, "SET", "fence:{lock:n}", number(ahead)+" "+number(ahead)+" - 0", "PX", "60000")
	first := s.hold(a, request("n"))
	if first.Token != ahead+1 {
		t.Errorf("token %d, want %d", first.Token, ahead+1)
	}
	w := s.queue(b, request("n"))
	first.free()
	second := w.granted()
	if second.Token != ahead+2 {
		t.Errorf("token %d after a hand-over, want %d", second.Token, ahead+2)
	}
	second.free()
	for i := range int64(3) {
		if g := s.hold(a, shared(request("n"), 0)); g.Token != ahead+3+i || g.Floor != ahead+3 {
			t.Errorf("shared token %d with floor %d, want %d and %d", g.Token, g.Floor, ahead+3+i, ahead+3)
		}
	}
	days := 24 * time.Hour.Milliseconds()
	if left := number64(t, s.server.Do(t, "PTTL", "fence:{lock:n}")); left < 106*days || left > 108*days {
		t.Errorf("the last token is kept for %d ms, want 107 days", left)
	}
}

// TestUndoneAcquire: an acquire writes before it knows that it may. What it finds
// then stands afterwards as if it had not been there.
func TestUndoneAcquire(t *testing.T) {
	t.Parallel()
	const fence, day = "fence:{lock:n}", 24 * time.Hour
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	try := request("n")
	try.Wait = false

	now := time.Now()
	last := number(now.UnixMicro()) + " " + number(now.UnixMicro()) + " - " + number(now.Add(30*day).UnixMicro())
	s.server.Do(t, "SET", fence, last, "PX", number((31 * day).Milliseconds()))
	if _, err := a.Acquire(t.Context(), try); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("during a minimum hold: %v", err)
	}
	if got := s.server.Do(t, "GET", fence); got != last || s.server.Do(t, "EXISTS", "lock:n") != "0" {
		t.Errorf("%q became %q, or the lock stayed", last, got)
	}
	if left := number64(t, s.server.Do(t, "PTTL", fence)); left < (29 * day).Milliseconds() {
		t.Errorf("the minimum hold is remembered for %d ms, want 30 days", left)
	}

	s.server.Do(t, "DEL", fence)
	s.server.Do(t, "LPUSH", fence, "of another type")
	h := s.hold(a, try)

	w := s.queue(b, request("n"))
	s.server.Do(t, "DEL", fence, "lock:n") // as eviction may
	if _, err := a.Acquire(t.Context(), try); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("past a waiter whom the fence does not show: %v", err)
	}
	if g := w.granted(); g.Token <= h.Token {
		t.Errorf("token %d after %d", g.Token, h.Token)
	}
}
