//go:build unix

package fenceredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fenceredis"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleGuard_Set() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Getenv("REDIS_ADDR")}, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	engine := memlock.New(nil)
	locks, guard := fencelock.New(engine, nil), fenceredis.New(client, nil)
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
type guard struct{ *fenceredis.Guard }

func (g guard) Run(ctx context.Context, resource, script string, keys, args []string) (string, error) {
	return g.Eval(ctx, resource, script, keys, args).ToString()
}

func TestGuard(t *testing.T) {
	guardtest.RunRedis(t, func(t testing.TB, keep time.Duration, addrs ...string) guardtest.Redis {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return guard{fenceredis.New(client, &fenceredis.Config{Keep: keep})}
	})
}

func TestExample(t *testing.T) {
	t.Setenv("REDIS_ADDR", redistest.StartRedis(t).Addr())
	if got, want := guardtest.Prints(ExampleGuard_Set), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("the example prints %q, want %q", got, want)
	}
}
