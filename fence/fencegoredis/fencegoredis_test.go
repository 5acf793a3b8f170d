//go:build unix

package fencegoredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencegoredis"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleGuard_Set() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	defer client.Close()
	engine := memlock.New(nil)
	locks, guard := fencelock.New(engine, nil), fencegoredis.New(client, nil)
	ctx := context.Background()

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	err = locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		return guard.Set(ctx, "invoice:42", "paid", 0)
	})
	fmt.Println("next:", err)
	err = guard.Set(inFlight, "invoice:42", "cancelled", 0)
	fmt.Println("late:", errors.Is(err, fence.ErrStale))
}

// guard returns the results of scripts as texts, as the conformance suite expects them.
type guard struct{ *fencegoredis.Guard }

func (g guard) Run(ctx context.Context, resource, script string, keys, args []string) (string, error) {
	return g.Eval(ctx, resource, script, keys, args).Text()
}

func TestGuard(t *testing.T) {
	guardtest.RunRedis(t, func(t testing.TB, keep time.Duration, addrs ...string) guardtest.Redis {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
		t.Cleanup(func() { _ = client.Close() })
		return guard{fencegoredis.New(client, &fencegoredis.Config{Keep: keep})}
	})
}

func TestExample(t *testing.T) {
	t.Setenv("REDIS_ADDR", redistest.StartRedis(t).Addr())
	if got, want := guardtest.Prints(ExampleGuard_Set), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("the example prints %q, want %q", got, want)
	}
}

// TestRing: a Ring forgets floors, and is not written to.
func TestRing(t *testing.T) {
	server := redistest.StartRedis(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}})
	defer ring.Close()
	if err := fencegoredis.New(ring, nil).Set(guardtest.Under(t, 1), "ring", "v", 0); err == nil || server.Do(t, "EXISTS", "ring") != "0" {
		t.Errorf("a Ring, which forgets floors, was written to: %v", err)
	}
}
