package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// TestLargerMaxTTLIsKept: a client with a larger MaxTTL takes a lock of a name in use.
// The nodes restart with an older state: they wait for as long as that lock may last,
// whoever asks.
func TestLargerMaxTTLIsKept(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: clients are configured with different MaxTTL", verdict.Safe)
	w := startNodes(t, 3)
	for _, r := range w {
		r.Do(t, "FLUSHALL")
	}
	small := open(t, w.addrs(), redlock.Config{MaxTTL: time.Second})
	eventually(t, "new nodes", func() bool { return small.Init(context.Background()) == nil })
	_, l := retryAcquire(t, small, "x", time.Second)
	_ = small.Release(t.Context(), l) // it may have ended by itself
	eventually(t, "free nodes", func() bool {
		return all(w, func(r *redistest.Redis) bool { return r.Do(t, "EXISTS", "lock:x") == "0" })
	})
	take(t, open(t, w.addrs(), redlock.Config{MaxTTL: time.Minute}), "x", time.Minute)
	for _, r := range w {
		eventually(t, "the lock on every node", func() bool { return r.Do(t, "EXISTS", "lock:x") == "1" })
		if marker := r.Do(t, "GET", "fencelock:node"); !strings.Contains(marker, " 60000 ") {
			t.Errorf("%s granted a lock for a minute, and its marker is %q", r.Addr(), marker)
		}
	}
	for _, r := range w[:2] { // they lose the lock, and keep the rest
		r.Do(t, "DEL", "lock:x")
		marker := r.Do(t, "GET", "fencelock:node")
		r.Do(t, "SET", "fencelock:node", strings.Repeat("0", 40)+marker[40:], "PX", "1000000")
	}
	if _, err := try(small, "x", time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("right after the restart: got %v, want ErrUnavailable", err)
	}
	time.Sleep(1200 * time.Millisecond) // the small MaxTTL is over
	if g, err := try(small, "x", time.Second); err == nil {
		t.Errorf("a second holder while the first has most of a minute left: %+v", g)
	}
}

func all(w world, yes func(*redistest.Redis) bool) bool {
	for _, r := range w {
		if !yes(r) {
			return false
		}
	}
	return true
}

// TestMarkerIsKept: who uses a node keeps its marker from expiring: grants, renewals
// and listings.
func TestMarkerIsKept(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "x", long)
	uses := map[string]func(){
		"a grant":   func() { _ = e.Release(t.Context(), l); _, l = retryAcquire(t, e, "x", long) },
		"a renewal": func() { _ = e.Renew(t.Context(), []driver.Lease{l}) },
		"a listing": func() { _, _ = e.List(t.Context(), driver.Query{Prefix: "x", Exact: true}) },
	}
	for what, use := range uses {
		for _, r := range w { // as if nobody had come for 25 hours
			words := strings.Fields(r.Do(t, "GET", "fencelock:node"))
			words[3] = strconv.FormatInt(time.Now().Add(-25*time.Hour).UnixMilli(), 10)
			r.Do(t, "SET", "fencelock:node", strings.Join(words, " "), "PX", "5000000")
		}
		eventually(t, what+" keeps the marker", func() bool {
			use() // again if a node was too slow to be asked
			return all(w, func(r *redistest.Redis) bool {
				left, _ := strconv.Atoi(r.Do(t, "PTTL", "fencelock:node"))
				return left > 80*24*3600*1000
			})
		})
	}
}

// TestWaitersTellForHowLong: a client tells nodes for how long it has waited, and not
// since when: the nodes' clocks decide who goes first.
func TestWaitersTellForHowLong(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	take(t, open(t, w.addrs(), redlock.Config{}), "x", long)
	told := make(chan string, 100)
	e := openThrough(t, w.addrs(), redlock.Config{}, func(_ int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			if redlock.Kind(c.Script) == "ask" && len(c.Args) > 6 && c.Args[6] != "-1" {
				select {
				case told <- c.Args[6]:
				default:
				}
			}
			return do()
		}}
	})
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // ends with cancel
		defer close(done)
		_, _ = e.Acquire(ctx, driver.Request{Name: "x", TTL: long, Wait: true})
	}()
	waited, err := strconv.ParseInt(<-told, 10, 64)
	if err != nil || waited < 0 || waited > time.Since(begun).Microseconds() {
		t.Errorf("after %v a client says that it has waited for %d us, %v", time.Since(begun), waited, err)
	}
	list, err := e.List(t.Context(), driver.Query{Prefix: "x", Exact: true})
	if err == nil && len(list) == 1 && len(list[0].Waiters) == 1 && list[0].Waiters[0].Since.Before(begun.Add(-time.Second)) {
		t.Errorf("it is listed as waiting since %v, and came at %v", list[0].Waiters[0].Since, begun)
	}
	cancel()
	<-done
}
