package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

// Requests succeed as long as a majority of the masters answers. In this example none does.
func Example() {
	var nodes []redlock.Node
	addrs := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for _, addr := range addrs {
		node := redlock.NewLazy(func() (rueidis.Client, error) {
			return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
		})
		defer node.Close()
		nodes = append(nodes, node)
	}
	engine := redlock.New(nodes, &redlock.Config{Nodes: addrs, RetryTimeout: 100 * time.Millisecond})
	defer func() { _ = engine.Close() }()

	_, err := engine.Acquire(context.Background(), driver.Request{Name: "invoice:42", TTL: 10 * time.Second})
	fmt.Println(errors.Is(err, driver.ErrUnavailable))
	// Output: true
}
