package ratelimit_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/crew"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/ratelimit"
)

func TestMain(m *testing.M) { crew.Main(m, map[string]crew.Job{"asker": crew.Of(always)}) }

var fleetLimit = ratelimit.Limit{Events: 100, Burst: 20}

const fleetInterval = 10_000 // microseconds

// recorder writes down what is granted, by the engine's clock.
type recorder struct {
	driver.RateLimiter
	out io.Writer
}

func (r recorder) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	taken, err := r.RateLimiter.TakeRate(ctx, take)
	if err == nil && taken.OK {
		fmt.Fprintln(r.out, taken.Now.UnixMicro(), taken.Ahead.Microseconds())
	}
	return taken, err
}

// always is a process that asks all the time, until its input ends.
func always(store engines.Store, in *bufio.Scanner) error {
	engine, err := store.Open()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20) // so that no write waits for the parent
	l := ratelimit.New(recorder{engine.(driver.RateLimiter), out}, "fleet", fleetLimit, &ratelimit.Config{Timeout: time.Minute})
	if _, err := l.Allow(context.Background(), "k"); err != nil {
		return err
	}
	fmt.Println("ready")
	var over atomic.Bool
	go func() { // ends with the input
		in.Scan()
		over.Store(true)
	}()
	for !over.Load() {
		r, err := l.Allow(context.Background(), "k")
		if err != nil {
			return err
		}
		time.Sleep(r.RetryAfter)
	}
	return out.Flush()
}

// TestFleet: eight processes share a rate, by a server whose clock is an hour ahead of
// theirs. In no stretch of time is more granted than it may be, and as much as the rate
// gives: each grant begins where the one before it ended, or when nobody had asked. With
// FENCELOCK_SLOW set, for 10 s and on PostgreSQL too.
func TestFleet(t *testing.T) {
	slow := os.Getenv("FENCELOCK_SLOW") != ""
	for kind, start := range map[string]func(t *testing.T, c *hosttest.Clock) string{
		"redis":    func(t *testing.T, c *hosttest.Clock) string { return redistest.StartRedisBy(t, c).Addr() },
		"postgres": func(t *testing.T, c *hosttest.Clock) string { return pgtest.StartPostgresBy(t, c).DSN() },
	} {
		if kind == "postgres" && !slow {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			clock := hosttest.NewClock(t)
			clock.Set(time.Hour)
			begun := time.Now()
			last := 2 * time.Second
			if slow {
				last = 10 * time.Second
			}
			grants := fleet(t, engines.Store{Kind: kind, At: start(t, clock), MaxTTL: time.Minute}, 8, last)
			if first := time.UnixMicro(grants[0].now); first.Before(begun.Add(50*time.Minute)) || first.After(time.Now().Add(61*time.Minute)) {
				t.Errorf("the first grant was at %v by the server's clock, an hour ahead of %v", first, begun)
			}
			judge(t, grants)
		})
	}
}

// grant is one event: when, and how far ahead of the clock all were then.
type grant struct{ now, ahead int64 }

// fleet lets so many processes ask for so long, and returns what they were granted.
func fleet(t *testing.T, store engines.Store, size int, last time.Duration) (grants []grant) {
	t.Helper()
	var all []*crew.Worker
	for range size {
		all = append(all, crew.Hire(t, "asker", store))
	}
	for _, w := range all {
		w.Want(t, "ready")
	}
	time.Sleep(last)
	for _, w := range all {
		w.Dismiss()
		for line := w.Hear(); line != ""; line = w.Hear() {
			var g grant
			if _, err := fmt.Sscan(line, &g.now, &g.ahead); err != nil {
				t.Fatalf("a process said %q", line)
			}
			grants = append(grants, g)
		}
		if err := w.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.now+a.ahead, b.now+b.ahead) })
	return grants
}

// judge looks at all grants together, in the order in which they were made.
func judge(t *testing.T, grants []grant) {
	t.Helper()
	var idle, lost, end int64
	for i, g := range grants {
		for j, early := range grants[:i] {
			if n := int64(i - j + 1); n*fleetInterval > int64(fleetLimit.Burst)*fleetInterval+g.now-early.now {
				t.Fatalf("%d events within %d us", n, g.now-early.now)
			}
		}
		if i > 0 {
			idle += max(0, g.now-end)
		}
		end = max(end, g.now) + fleetInterval
		if g.now+g.ahead < end {
			t.Fatalf("grant %d of %d at %d ended at %d, before %d", i, len(grants), g.now, g.now+g.ahead, end)
		}
		lost += g.now + g.ahead - end // an answer that did not come in time
		end = g.now + g.ahead
	}
	took := end - grants[0].now
	t.Logf("%d events in %d ms, of which nobody asked for %d ms and %d ms went to answers that were lost", len(grants), took/1000, idle/1000, lost/1000)
	if got, least := int64(len(grants))*fleetInterval, (took-idle-lost)*99/100; got < least {
		t.Errorf("%d events in %d us of asking", len(grants), took-idle-lost)
	}
}
