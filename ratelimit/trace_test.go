package ratelimit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// OnDecision gets each decision, and not those of Peek and of invalid calls. The hook of a tracer
// fits.
func TestOnDecision(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var got []fencelock.TraceRate
		tracer := &fencelock.Tracer{RateEnd: func(_ context.Context, d fencelock.TraceRate) { got = append(got, d) }}
		last := func(what string, asked, granted int, down bool) {
			t.Helper()
			if len(got) != 1 {
				t.Fatalf("%s: %d calls, want 1", what, len(got))
			}
			d := got[0]
			if d.Limiter != "api" || d.Engine != "memory" || d.Key != "k" || d.Asked != asked || d.Granted != granted || errors.Is(d.Err, driver.ErrUnavailable) != down {
				t.Errorf("%s: %+v", what, d)
			}
			got = nil
		}
		l := ratelimit.New(engine, "api", tenth, &ratelimit.Config{OnDecision: tracer.RateEnd})
		open := ratelimit.New(engine, "api", tenth, &ratelimit.Config{OnDecision: tracer.RateEnd, Down: ratelimit.FailOpen})
		_, _ = l.AllowN(t.Context(), "k", 2)
		last("granted", 2, 2, false)
		_, _ = l.AllowAtMost(t.Context(), "k", 9)
		last("one of nine", 9, 1, false)
		_, _ = l.Allow(t.Context(), "k")
		last("limited", 1, 0, false)
		_, _ = l.Peek(t.Context(), "k")
		_, _ = l.AllowN(t.Context(), "k", 99)
		if len(got) != 0 {
			t.Errorf("%d calls for Peek and an invalid number", len(got))
		}
		engine.Refuse(errors.New("down"))
		_, _ = l.Allow(t.Context(), "k")
		last("down", 1, 0, true)
		_, _ = open.Allow(t.Context(), "k")
		last("down, fail open", 1, 1, true)
	})
}
