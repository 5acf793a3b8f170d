package redislock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// TestTokensAfterAClockStep: the remembered token is ahead of the server's clock,
// as after a step back. Tokens go on from there, digit by digit, and the memory
// outlives the step.
func TestTokensAfterAClockStep(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: the server's clock is set back", verdict.Safe)
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	ahead := time.Now().Add(100 * 24 * time.Hour).UnixMicro()
	s.server.Do(t, "SET", "fencelock:2:fence:{lock:n}", number(ahead), "PX", "60000")
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
	if left := number64(t, s.server.Do(t, "PTTL", "fencelock:2:fence:{lock:n}")); left < 106*days || left > 108*days {
		t.Errorf("the last token is kept for %d ms, want 107 days", left)
	}
}
