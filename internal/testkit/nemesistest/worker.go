//go:build unix

package nemesistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/chaostest/record"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// envWorker is set in the environment of a worker: the TTL of its locks and where the store is.
const envWorker = "FENCELOCK_WORKER"

// ServeWorker takes locks until the process is killed, if Run has started it. Call it in TestMain.
func ServeWorker(open func(place string) driver.Engine) {
	text, place, ok := strings.Cut(os.Getenv(envWorker), " ")
	if !ok {
		return
	}
	writer, err := history.FromEnv()
	ttl, wrong := time.ParseDuration(text)
	if err != nil || wrong != nil {
		fmt.Fprintln(os.Stderr, "worker:", err, wrong)
		os.Exit(1)
	}
	locks := fencelock.New(open(place), &fencelock.Config{Tracer: record.Tracer(writer)}).
		WithOnly(fencelock.Options{TTL: ttl, Wait: 15 * time.Second})
	go work(locks, func() string { return "long" }, 2*ttl) // all end with the process
	for range 3 {
		go work(locks, func() string { return fmt.Sprint("job-", rand.N(2)) }, 5*time.Millisecond)
	}
	select {}
}

// work holds locks for less than most. It waits for most of them.
func work(locks *fencelock.Locker, name func() string, most time.Duration) {
	hold := func(ctx context.Context) error {
		retry.Sleep(ctx, rand.N(most))
		return nil
	}
	for {
		do := locks.Do
		if rand.N(4) == 0 {
			do = locks.TryDo
		}
		_ = do(context.Background(), name(), hold) // the tracer records errors
		time.Sleep(rand.N(3 * time.Millisecond))
	}
}
