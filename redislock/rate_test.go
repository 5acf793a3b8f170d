package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/ratetest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

// taking takes so many of a key's burst of four, an hour each.
func (s scene) taking(e *redislock.Engine, key string, n int) driver.RateTaken {
	s.Helper()
	taken, err := e.TakeRate(context.Background(), hourly(key, n))
	if err != nil {
		s.Fatalf("taking %d of %q: %v", n, key, err)
	}
	return taken
}

func hourly(key string, n int) driver.RateTake {
	return driver.RateTake{Key: key, Cost: time.Duration(n) * time.Hour, Most: 4 * time.Hour}
}

// rateShim is a script that runs another one with a clock of its own, by which nothing
// expires.
const rateShim = `local real, at = redis, ARGV[#ARGV]
local redis = { call = function(command, ...)
  if command == 'TIME' then return { string.sub(at, 1, -7), tostring(tonumber(string.sub(at, -6))) } end
  if command == 'SET' then
    local key, value, px, life = ...
    assert(px == 'PX' and life > 0)
    return real.call('SET', key, value)
  end
  return real.call(command, ...)
end }
--SCRIPT--`

// TestRateScripts: the scripts do what package gcra does.
func TestRateScripts(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	script := func(source string) *rueidis.Lua {
		return rueidis.NewLuaScript(strings.Replace(rateShim, "--SCRIPT--", source, 1))
	}
	ratetest.Check(t, rateScripts{rueidisClient(t, rueidisOption(s.server.Addr())),
		script(redislock.TakeRateScript.Source()), script(redislock.ReturnRateScript.Source()), script(redislock.ResetRateScript.Source())})
}

// rateScripts are the scripts, by a clock of their own.
type rateScripts struct {
	client               rueidis.Client
	takes, gives, resets *rueidis.Lua
}

// run runs a script with some numbers, of which the last is the time.
func (r rateScripts) run(l *rueidis.Lua, key string, args ...int64) (string, error) {
	var words []string
	for _, a := range args {
		words = append(words, strconv.FormatInt(a, 10))
	}
	return l.Exec(context.Background(), r.client, []string{key}, words).ToString()
}

func (r rateScripts) Take(key string, now, cost, most, each int64) (got, ahead int64, err error) {
	text, err := r.run(r.takes, key, cost, most, each, now)
	if err != nil {
		return 0, 0, err
	}
	at := int64(0)
	_, err = fmt.Sscan(text, &got, &at, &ahead)
	if err == nil && at != now {
		err = fmt.Errorf("%q at %d", text, now)
	}
	return got, ahead, err
}

func (r rateScripts) Return(key string, now, cost int64, left gcra.State) error {
	_, err := r.run(r.gives, key, cost, left.Last, left.Ahead, now)
	return err
}

func (r rateScripts) Reset(key string, now int64) error {
	_, err := r.run(r.resets, key, now)
	return err
}

func (r rateScripts) Kept(key string) (s gcra.State, err error) {
	text, err := r.client.Do(context.Background(), r.client.B().Get().Key(key).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return s, nil
	}
	if err == nil {
		_, err = fmt.Sscan(text, &s.Last, &s.Ahead)
	}
	return s, err
}

// TestRateKeys: a key lasts for as long as it matters, and nothing else is written; a
// refusal writes nothing, and what was given back leaves nothing.
func TestRateKeys(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(&redislock.Config{Prefix: "p:"})
	taken := s.taking(e, "a}{b", 1)
	const key = "p:fencelock:rate:a}{b"
	if got := s.server.Do(t, "KEYS", "*"); strings.TrimSpace(got) != key {
		t.Errorf("the server has the keys %q", got)
	}
	left, err := strconv.Atoi(strings.TrimSpace(s.server.Do(t, "PTTL", key)))
	if err != nil || left > 3_600_000 || left < 3_000_000 {
		t.Errorf("the key lasts for %d ms, %v", left, err)
	}
	before := s.server.Do(t, "GET", key)
	for _, look := range []string{"a}{b", "unknown"} {
		if taken := s.taking(e, look, 0); taken.OK || taken.Cost != 0 || (taken.Ahead > 0) != (look == "a}{b") || s.server.Do(t, "GET", key) != before {
			t.Errorf("a look at %s: %+v; it made %s of %s", look, taken, s.server.Do(t, "GET", key), before)
		}
	}
	if got := s.server.Do(t, "KEYS", "*"); strings.TrimSpace(got) != key {
		t.Errorf("after a look the server has the keys %q", got)
	}
	if s.taking(e, "a}{b", 4).OK || s.server.Do(t, "GET", key) != before {
		t.Errorf("a refusal made %s of %s", s.server.Do(t, "GET", key), before)
	}
	if err := e.ReturnRate(t.Context(), hourly("a}{b", 1), taken); err != nil || strings.TrimSpace(s.server.Do(t, "DBSIZE")) != "0" {
		t.Errorf("after a return: %v, %s keys", err, s.server.Do(t, "DBSIZE"))
	}
	s.taking(e, "a}{b", 4)
	if err := e.ResetRate(t.Context(), "a}{b"); err != nil || strings.TrimSpace(s.server.Do(t, "DBSIZE")) != "0" {
		t.Errorf("after a reset: %v, %s keys", err, s.server.Do(t, "DBSIZE"))
	}
}

// TestRateForeign: a key that somebody else wrote is an error, and stays.
func TestRateForeign(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	s.server.Do(t, "SET", "fencelock:rate:a", "mine")
	if _, err := e.TakeRate(t.Context(), hourly("a", 1)); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "another program") {
		t.Error(err)
	}
	if err := e.ResetRate(t.Context(), "a"); !errors.Is(err, driver.ErrConfig) || strings.TrimSpace(s.server.Do(t, "GET", "fencelock:rate:a")) != "mine" {
		t.Error(err)
	}
	s.server.Do(t, "DEL", "fencelock:rate:a")
	s.server.Do(t, "RPUSH", "fencelock:rate:a", "mine")
	if _, err := e.TakeRate(t.Context(), hourly("a", 1)); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Error(err)
	}
}

// TestRateLostAnswer: a try whose answer is lost is made again, and counts twice at most;
// the clients send no time of theirs.
func TestRateLostAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	tap.loseReply(redislock.TakeRateScript, func(redisconn.Reply) {})
	if taken := s.taking(e, "a", 1); !taken.OK || taken.Ahead > 2*time.Hour || taken.Ahead < time.Hour {
		t.Errorf("after a lost answer: %+v", taken)
	}
	var sent []string
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		sent = slices.Concat(c.Keys, c.Args)
		return do()
	})
	s.taking(e, "a", 1)
	if want := []string{"fencelock:rate:a", "3600000000", "14400000000", "3600000000"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

// TestRateUnreachable: without a server, and after Close, it is ErrUnavailable.
func TestRateUnreachable(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	taken := s.taking(s.engine(nil), "a", 1)
	e := s.engine(&redislock.Config{RetryTimeout: 50 * time.Millisecond})
	s.server.Kill(t)
	if _, err := e.TakeRate(t.Context(), hourly("a", 1)); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	if err := e.ReturnRate(t.Context(), hourly("a", 1), taken); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	_ = e.Close()
	if _, err := e.TakeRate(t.Context(), hourly("a", 1)); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}
