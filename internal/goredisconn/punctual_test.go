package goredisconn_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/go-redis/v9"
)

// goroutineHook notes which goroutine a command is processed on.
type goroutineHook struct{ seen *[]string }

func (goroutineHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (goroutineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h goroutineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*h.seen = append(*h.seen, goroutine())
		return next(ctx, cmd)
	}
}

// goroutine names the one that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
	return string(name)
}

// A call that the client ends in time by itself is made on the goroutine of its caller: with
// ContextTimeoutEnabled, under a context that only a deadline ends.
func TestCallsOnTheCallersGoroutine(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	for _, heeds := range []bool{true, false} {
		for _, cancelled := range []bool{true, false} {
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: heeds})
			var seen []string
			client.AddHook(goroutineHook{&seen})
			ctx := redisconn.WithDeadline(context.Background(), time.Minute)
			if cancelled {
				ctx = redisconn.WithDeadline(t.Context(), time.Minute)
			}
			call := redisconn.Call{Script: redisconn.NewScript("return 'x'"), Keys: []string{"k"}}
			if r := connOf(t, client).Eval(ctx, []redisconn.Call{call})[0]; r.Err != nil || r.Text != "x" {
				t.Fatal(r)
			}
			if here, want := seen[0] == goroutine(), heeds && !cancelled; here != want {
				t.Errorf("ContextTimeoutEnabled %t, cancellable %t: on this goroutine %t, want %t", heeds, cancelled, here, want)
			}
		}
	}
}

// Such a call ends at its deadline, whatever keeps it: the server, the pool or the network.
func TestCallsOnTheCallersGoroutineEndInTime(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	open := func(addr string) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 1})
	}
	busy := open(server.Addr())
	held := busy.Conn()
	defer held.Close()
	if err := held.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	frozen := open(server.Addr())
	if err := frozen.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Freeze(t)
	defer server.Thaw(t)
	for what, client := range map[string]*redis.Client{
		"a server that stands still": frozen, "a pool without a connection": busy, "a server that never greets": open(listener.Addr().String()),
	} {
		conn, call := connOf(t, client), redisconn.Call{Script: redisconn.NewScript("return 'x'"), Keys: []string{"k"}}
		for _, calls := range [][]redisconn.Call{{call}, {call, call}} {
			begun := time.Now()
			r := conn.Eval(redisconn.WithDeadline(context.Background(), 200*time.Millisecond), calls)[0]
			if took := time.Since(begun); !errors.Is(r.Err, context.DeadlineExceeded) || took > 2500*time.Millisecond { // the client's own limits are 3 s and more
				t.Errorf("%s, %d calls: %v after %v", what, len(calls), r.Err, took)
			}
		}
	}
}
