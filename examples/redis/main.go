// Command redis charges an invoice under a lock on Redis, by go-redis.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	engine := goredis.New(client, nil)
	defer engine.Close()
	locks := fencelock.New(engine, nil) // one for the whole program

	err := locks.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx) // greater than that of everybody before
		fmt.Println("charging invoice 42 under token", token)
		return ctx.Err() // ctx ends if the lock is lost
	})
	if err != nil {
		log.Fatal(err)
	}
}
