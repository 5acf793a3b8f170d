//go:build unix

package ratelimit_test

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/ratelimit"
)

// TestHotKeyOnRecords: sixty callers of one key, on records in files and in PostgreSQL: no more
// is granted than the limit allows, whatever the policy, and nobody takes a conflict for an outage.
// With FENCELOCK_SLOW set, for ten seconds and with the default timeout.
func TestHotKeyOnRecords(t *testing.T) {
	last, timeout := 2*time.Second, 5*time.Second // a busy machine is no outage
	if os.Getenv("FENCELOCK_SLOW") != "" {
		last, timeout = 10*time.Second, 0
	}
	all := engines.All(30 * time.Second)
	for _, name := range []string{"files", "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := all[name](t)
			for what, policy := range map[string]ratelimit.Policy{"closed": ratelimit.FailClosed, "open": ratelimit.FailOpen} {
				hot(t, what, &ratelimit.Config{Down: policy, Timeout: timeout}, last, func() driver.RateLimiter {
					return ratelimit.OnRecords(connect().(driver.RecordKeeper).Records())
				})
			}
		})
	}
}

// hot lets sixty callers, which share three processes' worth of records, ask for a time.
func hot(t *testing.T, key string, cfg *ratelimit.Config, last time.Duration, connect func() driver.RateLimiter) {
	limit := ratelimit.PerSecond(300)
	var granted, refused, unavailable atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for range 3 {
		l := ratelimit.New(connect(), "hot", limit, cfg)
		for range 20 {
			callers.Go(func() { // ends when the time is over
				for time.Since(begun) < last {
					switch r, err := l.Allow(t.Context(), key); {
					case errors.Is(err, driver.ErrUnavailable) || r.Err != nil:
						if unavailable.Add(1) == 1 {
							t.Errorf("%s: %v, %v", key, err, r.Err)
						}
					case err != nil:
						t.Error(err)
						return
					case r.OK:
						granted.Add(1)
					default:
						refused.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	allowed := int64(limit.Burst) + int64(time.Since(begun).Seconds()*300)
	t.Logf("%s: %d allowed, %d granted, %d refused, %d of an engine that was down", key, allowed, granted.Load(), refused.Load(), unavailable.Load())
	if granted.Load() > allowed || unavailable.Load() > 0 {
		t.Errorf("%s: %d granted of %d; %d of an engine that was down", key, granted.Load(), allowed, unavailable.Load())
	}
}
