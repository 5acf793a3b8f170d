package redislock_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// TestShortWays: an exclusive lock that nobody else wants is taken and released by the heads
// of the scripts, without the long text after them.
func TestShortWays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	short := func(script *redisconn.Script) *redisconn.Script {
		head, _, long := strings.Cut(script.Source(), "-- What the server keeps of a name")
		if !long {
			return script
		}
		return redisconn.NewScript(head, "return redis.error_reply('ERR the long way')")
	}
	acquire, release := short(redislock.AcquireScript), short(redislock.ReleaseScript)
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		switch c.Script {
		case redislock.AcquireScript:
			c.Script = acquire
		case redislock.ReleaseScript:
			c.Script = release
		default:
			return do()
		}
		return tap.Conn.Eval(t.Context(), []redisconn.Call{c})[0]
	})
	for range 3 {
		s.hold(e, request("n")).free()
	}
}
