package goredis_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock/goredis"
	"github.com/redis/go-redis/v9"
)

// A lock on three independent Redis masters, whose addresses are in REDIS_ADDRS.
func Example() {
	var clients []redis.UniversalClient
	for addr := range strings.SplitSeq(os.Getenv("REDIS_ADDRS"), ",") {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = client.Close() }()
		clients = append(clients, client)
	}
	engine := goredis.New(clients, nil)
	defer func() { _ = engine.Close() }()
	ctx := context.Background()
	if err := engine.Init(ctx); err != nil { // once, when the servers are new: "fencelock init" does it, too
		log.Print(err)
		return
	}

	locks := fencelock.New(engine, nil)
	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		_, ok := fencelock.TokenFrom(ctx)
		fmt.Println("charging, with a fencing token:", ok)
		return ctx.Err()
	})
	fmt.Println("error:", err)
}

// TestExample runs the example, which needs servers.
func TestExample(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, redistest.StartRedis(t).Addr())
	}
	t.Setenv("REDIS_ADDRS", strings.Join(addrs, ","))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = out // has room for all that it prints
	Example()
	os.Stdout = before
	_ = out.Close()
	got, err := io.ReadAll(in)
	want := "charging, with a fencing token: true\nerror: <nil>\n"
	if err != nil || string(got) != want {
		t.Errorf("the example prints %q, %v, want %q", got, err, want)
	}
}
