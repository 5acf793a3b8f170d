package redislock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// twice sends every script twice, as a hook or a proxy does that does not know whether the
// first one has arrived, and receives the second answer.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := strings.ToLower(cmd.Name()); name == "evalsha" || name == "eval" {
			_ = next(ctx, cmd)
			cmd.SetErr(nil)
		}
		return next(ctx, cmd)
	}
}

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRequestThatArrivesTwice: a request finds what it has got already, and is neither
// refused for its own sake nor put behind itself. A release that frees the lock, and then
// finds it gone, is no loss, and one that finds it gone at once is.
func TestRequestThatArrivesTwice(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	doubled, tap := s.tapped(nil)
	tap.calls(func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		do()
		return do()
	})
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(twice{})
	hooked := goredis.New(client, patient(nil))
	t.Cleanup(func() { _ = hooked.Close() })
	for name, e := range map[string]*redislock.Engine{"a tap": doubled, "a hook": hooked} {
		for _, req := range []driver.Request{try(request(name)), request(name), shared(try(request(name)), 0), shared(request(name), 3)} {
			for range 2 { // without a fence, and with one
				h := s.hold(e, req)
				if st := s.status(name); len(st.Holders) != 1 || st.Holders[0].Token != h.Token || len(st.Waiters) > 0 {
					t.Errorf("%s, %+v: %d holders, %d wait", name, req, len(st.Holders), len(st.Waiters))
				}
				h.free()
				s.gone(h.release()) // another release is another one
				s.clean(name)
			}
		}
		h := s.hold(s.observer(), request(name))
		first := s.queue(e, request(name))
		second := s.queue(e, request(name))
		if n := s.queued(name); n != 2 {
			t.Errorf("%s: %d wait, not 2", name, n)
		}
		h.free()
		first.kept().free()
		second.kept().free()
		s.clean(name)
		lost := s.hold(e, request(name))
		s.server.Do(t, "DEL", "lock:"+name)
		s.gone(lost.release())
	}
}
