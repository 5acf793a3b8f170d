package goredisconn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/goredisconn"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/conntest"
	"github.com/redis/go-redis/v9"
)

func connOf(t testing.TB, client redis.UniversalClient) redisconn.Conn {
	t.Cleanup(func() { _ = client.Close() })
	return goredisconn.New(client)
}

func TestConn(t *testing.T) {
	t.Parallel()
	conntest.Run(t, conntest.Maker{
		Single: func(t testing.TB, addr string) redisconn.Conn {
			return connOf(t, redis.NewClient(&redis.Options{Addr: addr}))
		},
		Cluster: func(t testing.TB, addrs []string) redisconn.Conn {
			return connOf(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}))
		},
		Sentinel: func(t testing.TB, addrs []string, master string) redisconn.Conn {
			return connOf(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master, SentinelAddrs: addrs}))
		},
	})
}

func TestRingIsRefused(t *testing.T) {
	t.Parallel()
	conn := connOf(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}))
	replies := conn.Eval(t.Context(), make([]redisconn.Call, 2))
	_, err := conn.Each(t.Context(), "PING")
	for _, err := range []error{
		replies[0].Err, replies[1].Err, err,
		conn.Subscribe(t.Context(), "c", func() {}, func(string) {}),
		conn.Scan(t.Context(), 0, "*", func([]string) error { return nil }),
	} {
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "redis.Ring") {
			t.Errorf("error %v", err)
		}
	}
}
