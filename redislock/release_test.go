package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// TestReleaseGoesOn: a release that has no answer in time goes on in the background.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(&redislock.Config{RetryTimeout: time.Second})
	s.warm(e)
	h := s.hold(e, request("n"))
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.ReleaseScript {
			return redisconn.Reply{Err: errLost}
		}
		return do()
	})
	for range 2 { // the second goes on beside nobody
		if err := h.release(); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("a release without an answer: %v", err)
		}
	}
	tap.calls(nil)
	s.clean("n")
	s.hold(s.observer(), request("n")).free()
}

// TestReleaseWhileTheMasterIsSilent: the master stops answering, and does not break its
// connections. What is released meanwhile is free soon after a replica has taken over.
func TestReleaseWhileTheMasterIsSilent(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	open := map[string]func(w *redistest.Sentinel) *redislock.Engine{
		"rueidis": func(w *redistest.Sentinel) *redislock.Engine {
			return sentinelEngine(t, w, &redislock.Config{RetryTimeout: 4 * time.Second})
		},
		"go-redis": func(w *redistest.Sentinel) *redislock.Engine {
			client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: w.MasterName(), SentinelAddrs: w.Addrs()})
			t.Cleanup(func() { _ = client.Close() })
			e := goredis.New(client, nil)
			t.Cleanup(func() { _ = e.Close() })
			return e
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			w := redistest.StartSentinel(t, 3)
			s := scene{TB: t, server: w.Master()}
			e, other := open(w), sentinelEngine(t, w, nil)
			s.warm(e)
			s.warm(other)
			req := driver.Request{Name: "n", TTL: ttl, Wait: true}
			h := s.hold(e, req)
			s.until("the replica has it", func() bool { return w.Replica().Do(t, "EXISTS", "lock:n") == "1" })
			w.Master().Freeze(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // as a Locker has
			defer cancel()
			_ = e.Release(ctx, h.lease())
			w.WaitMaster(t, w.Known(w.Master()))
			s.until("another name", func() bool {
				_, err := other.Acquire(t.Context(), driver.Request{Name: "another", TTL: ttl})
				return err == nil || errors.Is(err, driver.ErrHeld)
			})
			serves := time.Now()
			s.until("the name is free", func() bool {
				_, err := other.Acquire(t.Context(), try(req))
				return err == nil
			})
			took := time.Since(serves)
			if t.Logf("free %v after the new master", took); took > ttl/2 {
				t.Errorf("the name was free %v after the new master had begun to serve", took)
			}
			w.Master().Thaw(t)
		})
	}
}
