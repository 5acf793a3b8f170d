package redisconn_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/conntest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/rueidis"
)

// rueidisOption are the settings that doc.go recommends.
func rueidisOption(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, DisableCache: true, ConnWriteTimeout: 5 * time.Second}
	o.Dialer.KeepAlive = 10 * time.Second
	return o
}

func rueidisClient(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// connect makes a client. On a slow machine a dial may take longer than the client waits.
func connect(o rueidis.ClientOption) (client rueidis.Client, err error) {
	for end := time.Now().Add(time.Minute); ; {
		client, err = rueidis.NewClient(o)
		slow, ok := errors.AsType[net.Error](err)
		if err == nil || !ok || !slow.Timeout() || time.Now().After(end) {
			return client, err
		}
	}
}

func rueidisMaker(change func(*rueidis.ClientOption)) conntest.Maker {
	dial := func(t testing.TB, o rueidis.ClientOption) redisconn.Conn {
		change(&o)
		return redisconn.Rueidis(rueidisClient(t, o))
	}
	return conntest.Maker{
		Single:  func(t testing.TB, addr string) redisconn.Conn { return dial(t, rueidisOption(addr)) },
		Cluster: func(t testing.TB, addrs []string) redisconn.Conn { return dial(t, rueidisOption(addrs...)) },
		Sentinel: func(t testing.TB, addrs []string, master string) redisconn.Conn {
			o := rueidisOption(addrs...)
			o.Sentinel.MasterSet = master
			o.Sentinel.TopologyRefreshInterval = 5 * time.Second
			return dial(t, o)
		},
	}
}

func TestRueidisConn(t *testing.T) {
	t.Parallel()
	conntest.Run(t, rueidisMaker(func(*rueidis.ClientOption) {}))
}

// TestLimitedContexts proves that a deadline which Done does not tell is honoured,
// also on connections that the client pipelines.
func TestLimitedContexts(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	script := redisconn.NewScript(`return ARGV[1]`)
	call := redisconn.Call{Script: script, Keys: []string{"k"}, Args: []string{"v"}}
	for _, always := range []bool{false, true} {
		o := rueidisOption(server.Addr())
		o.AlwaysPipelining = always
		conn := redisconn.Rueidis(rueidisClient(t, o))
		for range 20 { // enough for the solo connection to close where it does not pay
			if r := conn.Eval(t.Context(), []redisconn.Call{call})[0]; r.Err != nil || r.Text != "v" {
				t.Fatalf("%q, %v", r.Text, r.Err)
			}
		}
		for _, n := range []int{1, 2} {
			warm := conn.Eval(t.Context(), []redisconn.Call{call, call})
			server.Freeze(t)
			start := time.Now()
			r := conn.Eval(redisconn.WithDeadline(context.Background(), 200*time.Millisecond), repeat(call, n))
			took := time.Since(start)
			server.Thaw(t)
			if warm[0].Err != nil || !errors.Is(r[0].Err, context.DeadlineExceeded) || took > 9*time.Second {
				t.Errorf("pipelining %v, %d calls: %v, %v after %v", always, n, warm[0].Err, r[0].Err, took)
			}
		}
	}
}

func repeat(call redisconn.Call, n int) (calls []redisconn.Call) {
	for range n {
		calls = append(calls, call)
	}
	return calls
}
