package redlock_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// TestOwnAttemptIsNoRival: an attempt gets every node, and is lost because the nodes
// refuse its second round. The next one comes to them before what the first got has
// been given back. It does not take that for somebody who holds the name.
func TestOwnAttemptIsNoRival(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	met := make(chan struct{}) // the next attempt has met the first one
	meet := sync.OnceFunc(func() { close(met) })
	t.Cleanup(meet) // before the engine is closed, which waits for the releases
	var raises, helds atomic.Int32
	e := openThrough(t, w.addrs(), redlock.Config{}, func(_ int, node redislock.Conn) redislock.Conn {
		return watched{node, func(c redislock.Call, do func() []redislock.Reply) []redislock.Reply {
			switch redlock.Kind(c.Script) {
			case "raise":
				if raises.Add(1) <= 3 {
					return []redislock.Reply{{Err: redislock.ServerError{Text: "BUSY Redis is busy running a script."}}}
				}
			case "release":
				<-met
			case "ask":
				answer := do()
				if strings.HasPrefix(answer[0].Text, "held ") && helds.Add(1) == 2 {
					meet()
				}
				return answer
			}
			return do()
		}}
	})
	// A minimum hold is stored in a second round.
	if _, err := e.Acquire(t.Context(), driver.Request{Name: "x", TTL: long, MinHold: time.Second}); err != nil {
		t.Errorf("a free name is refused: %v", err)
	}
}
