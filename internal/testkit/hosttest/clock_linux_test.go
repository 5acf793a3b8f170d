package hosttest_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// within checks that a server's clock is so far ahead of ours, but for the time
// the question took.
func within(t *testing.T, ahead time.Duration, read func() time.Time) {
	t.Helper()
	asked := time.Now()
	got := read()
	early, late := asked.Add(ahead-time.Millisecond), time.Now().Add(ahead+time.Millisecond)
	if got.Before(early) || got.After(late) {
		t.Errorf("the server has %v, want %v to %v", got, early, late)
	}
}

// jump sets a clock ahead and back, and looks each time.
func jump(t *testing.T, c *hosttest.Clock, read func() time.Time) {
	t.Helper()
	for _, ahead := range []time.Duration{0, time.Hour, -24 * time.Hour, 1500 * time.Millisecond, 0} {
		c.Set(ahead)
		within(t, ahead, read)
	}
}

func TestClockOfRedis(t *testing.T) {
	t.Parallel()
	c := hosttest.NewClock(t)
	r := redistest.StartRedisBy(t, c)
	read := func() time.Time {
		seconds, micros, _ := strings.Cut(r.Do(t, "TIME"), "\n")
		s, _ := strconv.ParseInt(seconds, 10, 64)
		us, _ := strconv.ParseInt(micros, 10, 64)
		return time.Unix(s, us*1000)
	}
	jump(t, c, read)
	r.Do(t, "SET", "a", "1", "PX", "60000")
	c.Set(2 * time.Minute)
	if got := r.Do(t, "EXISTS", "a"); got != "0" {
		t.Error("a key has outlived its time by the server's clock")
	}
	r.Kill(t)
	r.Restart(t)
	within(t, 2*time.Minute, read)
}

func TestClockOfPostgres(t *testing.T) {
	t.Parallel()
	c := hosttest.NewClock(t)
	c.Set(time.Hour)
	pg := pgtest.StartPostgresBy(t, c)
	conn := pg.Connect(t)
	jump(t, c, func() (now time.Time) {
		if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		return now
	})
}

// TestClocksAreApart: each server goes by its own clock, or by the machine's.
func TestClocksAreApart(t *testing.T) {
	t.Parallel()
	c := hosttest.NewClock(t)
	by, plain := redistest.StartRedisBy(t, c), redistest.StartRedis(t)
	c.Set(time.Hour)
	read := func(r *redistest.Redis) int64 {
		seconds, _, _ := strings.Cut(r.Do(t, "TIME"), "\n")
		s, _ := strconv.ParseInt(seconds, 10, 64)
		return s
	}
	if apart := read(by) - read(plain); apart < 3599 || apart > 3700 {
		t.Errorf("%d s between the servers, want an hour", apart)
	}
}
