package redislock_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// TestSentinelOutageCostsOneTimeout: the master that Sentinel names does not answer, and then the Sentinels
// do not, either. A hundred concurrent calls of all kinds end within RetryTimeout of their own start. Lists
// make several requests, and end at the first that is not answered.
func TestSentinelOutageCostsOneTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	cfg := &redislock.Config{RetryTimeout: timeout}
	for client, open := range map[string]func(t testing.TB, w *redistest.Sentinel) *redislock.Engine{
		"rueidis": func(t testing.TB, w *redistest.Sentinel) *redislock.Engine { return sentinelEngine(t, w, cfg) },
		"go-redis": func(t testing.TB, w *redistest.Sentinel) *redislock.Engine {
			return goredisEngine(t, &redis.UniversalOptions{Addrs: w.Addrs(), MasterName: w.MasterName()}, cfg)
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			w := redistest.StartSentinel(t, 3)
			e := open(t, w)
			lease := examtest.Held(t, e)
			w.Replica().Freeze(t) // nobody takes over
			defer w.Replica().Thaw(t)
			w.Master().Freeze(t)
			defer w.Master().Thaw(t)
			if _, err := e.Acquire(t.Context(), try(request("first"))); !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("a silent master: %v", err)
			}
			ask := func() {
				t.Helper()
				calls := slices.Concat(examtest.Calls(e, lease, timeout), examtest.Lists(e, 2*timeout), examtest.RecordCalls(e.Records(), timeout))
				examtest.Outage(t, calls)
			}
			ask()
			for _, watcher := range w.Sentinels() {
				watcher.Freeze(t)
				defer watcher.Thaw(t)
			}
			ask()
		})
	}
}
