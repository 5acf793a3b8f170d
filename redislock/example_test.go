package redislock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, DisableCache: true})
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()

	engine := redislock.New(client, nil)
	defer func() { _ = engine.Close() }()
	locks := fencelock.New(engine, nil)

	err = locks.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx)
		fmt.Println("charging once, with token", token)
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
