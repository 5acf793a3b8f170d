//go:build unix

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/memlock"
)

// TestSignalInTheInstantOfTheGrant: a signal that arrives at the moment of the grant either ends
// the wait or is delivered to the command.
func TestSignalInTheInstantOfTheGrant(t *testing.T) {
	verdict.Is(t, "fencelock run: a signal arrives at the moment of the grant", verdict.Safe)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // otherwise the goroutine of await would nearly always get the signal first
	came := make(chan os.Signal, 1)
	signal.Notify(came, unix.SIGTERM)
	defer signal.Stop(came)
	a := &App{Context: t.Context()}
	locks := fencelock.New(memlock.New(nil), nil)
	for n := range 200 {
		lock, signals, err := a.await(func(ctx context.Context) (*fencelock.Lock, error) {
			lock, err := locks.TryAcquire(ctx, "x")
			must(t, unix.Kill(unix.Getpid(), unix.SIGTERM))
			<-came
			return lock, err
		}, nil)
		if err != nil {
			continue
		}
		select {
		case <-signals:
		case <-time.After(scriptPatience):
			t.Fatalf("signal %d was not delivered", n)
		}
		signal.Stop(signals)
		must(t, lock.Release())
	}
}

// TestSignalBeforeTheStartOfATick: on an engine without records a signal after the claim gives the
// tick back while this host still holds the lock. The next holder runs the tick.
func TestSignalBeforeTheStartOfATick(t *testing.T) {
	store := memlock.New(nil)
	locks := fencelock.New(claimsOnly{store, store, store}, nil)
	job := cron.New(locks, "x", nil)
	a, tick := &App{Context: t.Context()}, time.Now()
	take := cron.Take{Acquire: locks.TryAcquire, AtOnce: true}
	for n := range 20 {
		next := make(chan error, 1)
		var run tickRun
		_, _, err := a.await(func(ctx context.Context) (lock *fencelock.Lock, err error) {
			if run.attempt, err = job.Begin(ctx, tick, take); err != nil {
				t.Fatal(err)
			}
			go func() { // ends when it has the lock
				take := cron.Take{Acquire: locks.Acquire}
				other, err := job.Begin(context.Background(), tick, take)
				if err == nil {
					_ = other.Finish(errors.New("a test"))
					err = other.Lock().Release()
				}
				next <- err
			}()
			time.Sleep(20 * time.Millisecond) // for it to wait
			must(t, unix.Kill(unix.Getpid(), unix.SIGTERM))
			<-ctx.Done()
			return run.attempt.Lock(), nil
		}, run.finish)
		if err == nil {
			t.Fatal("the signal did not end the wait")
		}
		if err := <-next; err != nil {
			t.Fatalf("attempt %d: the next holder did not get the tick: %v", n, err)
		}
	}
}

// claimsOnly hides the records of an engine.
type claimsOnly struct {
	driver.Engine
	driver.Lister
	driver.Breaker
}
