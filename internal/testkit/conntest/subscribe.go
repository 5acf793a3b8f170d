package conntest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// listener is a subscription under test.
type listener struct {
	messages chan string
	ended    chan error
	stop     context.CancelFunc
}

// listen subscribes and returns when that is acknowledged.
func listen(t *testing.T, conn redisconn.Conn, channel string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{messages: make(chan string, 1<<15), ended: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	go func() { // ends with the subscription
		l.ended <- conn.Subscribe(ctx, channel, func() { close(ready) }, func(text string) { l.messages <- text })
	}()
	select {
	case <-ready:
	case err := <-l.ended:
		t.Fatalf("Subscribe: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("Subscribe: not ready")
	}
	return l
}

// end returns why the subscription ended.
func (l *listener) end(t *testing.T, limit time.Duration) error {
	t.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(limit):
		t.Fatal("the subscription did not end")
		return nil
	}
}

func (l *listener) want(t *testing.T, text string) {
	t.Helper()
	select {
	case got := <-l.messages:
		if got != text {
			t.Fatalf("message %q, want %q", got, text)
		}
	case err := <-l.ended:
		t.Fatalf("the subscription ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatalf("no message %q", text)
	}
}

var publish = redisconn.NewScript(`for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('PUBLISH', ARGV[3], i) end return 'ok'`)

func testMessages(t *testing.T, _ *redistest.Redis, conn redisconn.Conn) {
	l := listen(t, conn, "order")
	const n = 10000
	for i := 0; i < n; i += 100 {
		eval(t, conn, redisconn.Call{Script: publish, Keys: []string{"k"}, Args: []string{strconv.Itoa(i), strconv.Itoa(i + 99), "order"}})
	}
	for i := range n {
		l.want(t, strconv.Itoa(i))
	}
	l.stop()
	if err := l.end(t, 9*time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("Subscribe returned %v", err)
	}
}

func testSubscribeEnds(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	conn := m.Single(t, server.Addr())
	l := listen(t, conn, "ends")
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	if err := l.end(t, 9*time.Second); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("after CLIENT KILL: %v", err)
	}
	l = listen(t, conn, "ends")
	server.Do(t, "PUBLISH", "ends", "hello")
	l.want(t, "hello")
	server.Restart(t)
	if err := l.end(t, 9*time.Second); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("after a restart: %v", err)
	}
	evalUntil(t, conn, echoCall("k", "v"))
}

// testSilentDeath proves that a subscription whose traffic is lost is noticed.
func testSilentDeath(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	proxy := startProxy(t, server.Addr())
	conn := m.Single(t, proxy.Addr())
	l := listen(t, conn, "silent")
	proxy.Drop(faults.Both)
	if err := l.end(t, 40*time.Second); err == nil {
		t.Error("no error")
	}
}

func startProxy(t *testing.T, target string) *faults.Proxy {
	t.Helper()
	p, err := faults.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func testRestart(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	conn := m.Single(t, server.Addr())
	for i := range 3 {
		eval(t, conn, echoCall("k", "before"))
		conn.Eval(t.Context(), make3(3))
		server.Kill(t)
		server.Restart(t)
		if got := evalUntil(t, conn, echoCall("k", fmt.Sprint(i))); got != fmt.Sprint(i) {
			t.Errorf("after restart %d: %q", i, got)
		}
		listen(t, conn, "restart").stop()
	}
}

// testLostReply proves that a call whose answer is lost is not made again.
func testLostReply(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	proxy := startProxy(t, server.Addr())
	conn := m.Single(t, proxy.Addr())
	for _, n := range []int{1, 3} {
		for round := range 3 {
			key := fmt.Sprintf("lost-%d-%d", n, round)
			evalUntil(t, conn, incrCall("warm"))
			proxy.SwallowReply(key)
			calls := make([]redisconn.Call, n)
			for i := range calls {
				calls[i] = incrCall(key)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			go func() { // ends when the server has run them, or with ctx
				for ctx.Err() == nil {
					if n, _ := server.TryDo("GET", key); n == strconv.Itoa(len(calls)) {
						time.AfterFunc(100*time.Millisecond, cancel)
						return
					}
				}
			}()
			for _, r := range conn.Eval(ctx, calls) {
				if _, refused := errors.AsType[redisconn.ServerError](r.Err); r.Err == nil || refused {
					t.Errorf("%s: %q, %v", key, r.Text, r.Err)
				}
			}
			cancel()
			evalUntil(t, conn, incrCall("warm"))
			if got := server.Do(t, "GET", key); got != strconv.Itoa(n) {
				t.Errorf("%d calls ran %s times", n, got)
			}
		}
	}
}
