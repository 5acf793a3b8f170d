package goredis_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()

	engine := goredis.New(client, nil)
	defer func() { _ = engine.Close() }()
	locker := fencelock.New(engine, nil)

	err := locker.Do(context.Background(), "invoices", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx)
		fmt.Println("token", token)
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
