// Command redis charges an invoice under a lock on Redis, with go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	engine := goredis.New(client, nil)  // client is a *redis.Client or a *redis.ClusterClient
	locks := fencelock.New(engine, nil) // one for the whole program

	wait := fencelock.Options{Wait: 5 * time.Second}
	err := locks.With(wait).Do(ctx, "invoice:42", func(ctx context.Context) error {
		return charge(ctx, 42) // stops when ctx ends: the lock is lost then
	})
	switch {
	case errors.Is(err, fencelock.ErrLost):
		log.Fatal("lock lost while charging, outcome unknown: ", err)
	case errors.Is(err, fencelock.ErrHeld):
		log.Fatal("not charged, another process holds the lock: ", err)
	case errors.Is(err, fencelock.ErrUnavailable):
		log.Fatal("not charged, Redis is unreachable: ", err)
	case err != nil:
		log.Fatal("charge failed, or the configuration is wrong: ", err)
	}
	if err := engine.Close(); err != nil {
		log.Fatal(err)
	}
}

func charge(ctx context.Context, invoice int) error {
	token, _ := fencelock.TokenFrom(ctx)
	fmt.Println("charging invoice", invoice, "under token", token)
	return ctx.Err()
}
