package redlock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redlock"
)

// TestWrongClocksOfWaiters: a client whose clock is an hour behind does not wait in front
// of all others, and one whose clock is ahead not behind them: the place in a node's
// queue is when the request began by the node's clock.
func TestWrongClocksOfWaiters(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	began := time.Now()
	retryAcquire(t, open(t, w.addrs(), redlock.Config{}), "n", long)
	clocks := []time.Duration{0, -time.Hour, time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, len(clocks))
	for _, wrong := range clocks {
		e := open(t, w.addrs(), redlock.Config{})
		e.SetClock(func() time.Time { return time.Now().Add(wrong) })
		go func() { // ends with ctx
			_, _ = e.Acquire(ctx, driver.Request{Name: "n", TTL: long, Wait: true})
			done <- struct{}{}
		}()
	}
	defer func() {
		cancel()
		for range clocks {
			<-done
		}
	}()
	for _, node := range w {
		var queue []string // a request, and then its place
		eventually(t, "all wait", func() bool {
			queue = strings.Fields(node.Do(t, "ZRANGE", "queue:{lock:n}", "0", "-1", "WITHSCORES"))
			return len(queue) == 2*len(clocks)
		})
		for i := 1; i < len(queue); i += 2 {
			place, err := strconv.ParseInt(queue[i], 10, 64)
			if at := time.UnixMicro(place); err != nil || at.Before(began.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
				t.Errorf("a request has waited since %v, by the clock of the node that is %v", at, time.Now())
			}
		}
	}
}
