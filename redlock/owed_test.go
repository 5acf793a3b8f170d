package redlock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redlock"
)

// TestOwnAttemptIsNoRival: an attempt gets every node, and is lost because the nodes
// refuse its second round. The next one comes to them before what the first got has
// been given back, and is answered just before it is, or just after. It does not take
// that for somebody who holds the name.
func TestOwnAttemptIsNoRival(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) { ownAttemptIsNoRival(t, late) })
	}
}

func ownAttemptIsNoRival(t *testing.T, late bool) {
	w := startNodes(t, 3)
	met := make(chan struct{}) // the next attempt has met the first one
	meet := sync.OnceFunc(func() { close(met) })
	t.Cleanup(meet) // before the engine is closed, which waits for the releases
	var raises, helds atomic.Int32
	var freed [3]context.Context
	var free [3]context.CancelFunc
	for i := range freed {
		freed[i], free[i] = context.WithCancel(t.Context())
	}
	e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			switch redlock.Kind(c.Script) {
			case "raise":
				if raises.Add(1) <= 3 {
					return []redisconn.Reply{{Err: redisconn.ServerError{Text: "BUSY Redis is busy running a script."}}}
				}
			case "release":
				<-met
				defer free[i]()
			case "ask":
				answer := do()
				if strings.HasPrefix(answer[0].Text, "held ") {
					if helds.Add(1) == 2 {
						meet()
					}
					if late {
						<-freed[i].Done()
					}
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
