package redislock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// TestCause: whatever fails says why, and at which address: a server that refuses
// connections, and one that does not answer.
func TestCause(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		hurt  func(scene)
		words []string
	}{
		"stopped": {func(s scene) { s.server.Stop(t) }, []string{"refused", "EOF", "reset", "broken pipe"}},
		"frozen":  {func(s scene) { s.server.Freeze(t) }, []string{"no answer"}},
	} {
		s := newScene(t)
		e := redislock.New(rueidisClient(t, rueidisOption(s.server.Addr())), patient(nil))
		t.Cleanup(func() { _ = e.Close() })
		h := s.hold(e, request("n"))
		fresh := redislock.New(rueidisClient(t, rueidisOption(s.server.Addr())), patient(nil))
		t.Cleanup(func() { _ = fresh.Close() })
		c.hurt(s)
		var calls sync.WaitGroup
		for call, f := range map[string]func(context.Context) error{
			"try":       func(ctx context.Context) error { _, err := e.Acquire(ctx, try(request("n"))); return err },
			"acquire":   func(ctx context.Context) error { _, err := e.Acquire(ctx, request("n")); return err },
			"first try": func(ctx context.Context) error { _, err := fresh.Acquire(ctx, try(request("n"))); return err },
			"renew":     func(ctx context.Context) error { return e.Renew(ctx, []driver.Lease{h.lease()})[0] },
			"release":   func(ctx context.Context) error { return e.Release(ctx, h.lease()) },
			"resize":    func(ctx context.Context) error { return e.Resize(ctx, "n", 3) },
			"break":     func(ctx context.Context) error { _, err := e.Break(ctx, "n", ""); return err },
			"list":      func(ctx context.Context) error { _, err := e.List(ctx, driver.Query{}); return err },
			"status": func(ctx context.Context) error {
				_, err := e.List(ctx, driver.Query{Prefix: "n", Exact: true})
				return err
			},
			"inspect":   func(ctx context.Context) error { _, err := e.Inspect(ctx, time.Minute); return err },
			"subscribe": func(ctx context.Context) error { return fresh.Subscribed(ctx) },
		} {
			calls.Go(func() {
				var err error
				for limit := 500 * time.Millisecond; limit < patience; limit *= 2 { // a slow machine may receive nothing in time
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					err = f(ctx)
					cancel()
					if errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), s.server.Addr()) &&
						slices.ContainsFunc(c.words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
						return
					}
				}
				t.Errorf("%s, %s: %v", what, call, err)
			})
		}
		calls.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Renew(ended, []driver.Lease{h.lease()})[0]; !strings.Contains(err.Error(), s.server.Addr()) {
			t.Errorf("%s, after the context: %v", what, err)
		}
	}
}
