package redisconn_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/rueidis"
)

const (
	takeLua = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'ok' end return 'held'`
	freeLua = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) return 'ok' end return 'gone'`
)

// BenchmarkPair measures taking and freeing a key with the bare commands, and with
// two calls of a Conn on the same client: a call costs little more than its round
// trip.
func BenchmarkPair(b *testing.B) {
	server := redistest.StartRedis(b)
	client := rueidisClient(b, rueidisOption(server.Addr()))
	bare := rueidis.NewLuaScript(freeLua)
	take, free := redisconn.NewScript(takeLua), redisconn.NewScript(freeLua)
	conn := redisconn.Rueidis(client)
	for name, pair := range map[string]func(ctx context.Context, key string) error{
		"bare": func(ctx context.Context, key string) error {
			err := client.Do(ctx, client.B().Set().Key(key).Value("owner").Nx().PxMilliseconds(30000).Build()).Error()
			if err != nil {
				return err
			}
			return bare.Exec(ctx, client, []string{key}, []string{"owner"}).Error()
		},
		"conn": func(ctx context.Context, key string) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			keys := []string{key}
			if r := conn.Eval(ctx, []redisconn.Call{{Script: take, Keys: keys, Args: []string{"owner", "30000"}}}); r[0].Err != nil {
				return r[0].Err
			}
			return conn.Eval(ctx, []redisconn.Call{{Script: free, Keys: keys, Args: []string{"owner"}}})[0].Err
		},
	} {
		b.Run("alone/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := pair(context.Background(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("128 per CPU/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(128)
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := "k" + strconv.FormatInt(next.Add(1), 10)
				for pb.Next() {
					if err := pair(context.Background(), key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
