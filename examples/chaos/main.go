// Command chaos increments a counter in Redis again and again, under a lock and a guard. Its test
// starts two of these processes, freezes one and kills the other.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/chaostest/record"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencegoredis"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

func main() {
	recorded, err := history.FromEnv() // nil, unless a test has started this process
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	guard := fencegoredis.New(client, nil)
	engine := goredis.New(client, nil)
	locks := fencelock.New(engine, &fencelock.Config{Tracer: record.Tracer(recorded)}).With(fencelock.Options{TTL: time.Second})
	for {
		err := locks.Do(context.Background(), "counter", func(ctx context.Context) error {
			time.Sleep(300 * time.Millisecond) // the work
			began := history.Now()
			// Without WithoutCancel, a process that was frozen would mostly stop here. The guard is
			// for the pause that comes after the last check of ctx.
			n, err := guard.Eval(context.WithoutCancel(ctx), "count", "return redis.call('INCR', KEYS[1])", []string{"count"}, nil).Int64()
			if err != nil {
				return err
			}
			return record.Wrote(ctx, recorded, began, n)
		})
		switch {
		case errors.Is(err, fence.ErrStale), errors.Is(err, fencelock.ErrLost):
			log.Print(err)
		case err != nil:
			log.Fatal(err)
		}
	}
}
