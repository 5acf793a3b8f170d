package ratelimit_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/redislock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// What a child of the test is told: an engine and where it is.
const (
	envKind = "FENCELOCK_RATELIMIT_TEST"
	envAt   = "FENCELOCK_RATELIMIT_TEST_AT"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(envKind); kind != "" {
		if err := always(kind, os.Getenv(envAt)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

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

// always is a child: it always asks, until its input ends.
func always(kind, at string) error {
	engine, err := openRates(kind, at)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20) // so that no write waits for the parent
	l := ratelimit.New(recorder{engine, out}, "fleet", fleetLimit, &ratelimit.Config{Timeout: time.Minute})
	if _, err := l.Allow(context.Background(), "k"); err != nil {
		return err
	}
	fmt.Println("ready")
	var over atomic.Bool
	go func() { // ends with the input
		_, _ = io.Copy(io.Discard, os.Stdin)
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

func openRates(kind, at string) (driver.RateLimiter, error) {
	if kind == "postgres" {
		pool, err := pgxpool.New(context.Background(), at)
		if err != nil {
			return nil, err
		}
		return pglock.New(pool, nil), nil
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{at}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	return redislock.New(client, &redislock.Config{RetryTimeout: time.Minute}), nil
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
			grants := fleet(t, kind, start(t, clock), 8, last)
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
func fleet(t *testing.T, kind, at string, size int, last time.Duration) (grants []grant) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var ins []io.Closer
	var outs []*bufio.Scanner
	var cmds []*exec.Cmd
	for range size {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), envKind+"="+kind, envAt+"="+at)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err != nil || err2 != nil || cmd.Start() != nil {
			t.Fatal("a process does not start", err, err2)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		ins, outs, cmds = append(ins, in), append(outs, bufio.NewScanner(out)), append(cmds, cmd)
	}
	for _, out := range outs {
		if !out.Scan() || out.Text() != "ready" {
			t.Fatalf("a process said %q", out.Text())
		}
	}
	time.Sleep(last)
	for i, in := range ins {
		_ = in.Close() // which ends the process
		for outs[i].Scan() {
			var g grant
			if _, err := fmt.Sscan(outs[i].Text(), &g.now, &g.ahead); err != nil {
				t.Fatalf("a process said %q", outs[i].Text())
			}
			grants = append(grants, g)
		}
		if err := cmds[i].Wait(); err != nil {
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
