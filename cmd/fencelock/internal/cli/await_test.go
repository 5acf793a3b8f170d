//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
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
	a := &app{ctx: t.Context()}
	locks := fencelock.New(memlock.New(nil), nil)
	for n := range 200 {
		lock, signals, err := a.await(func(ctx context.Context) (*fencelock.Lock, error) {
			lock, err := locks.TryAcquire(ctx, "x")
			must(t, unix.Kill(unix.Getpid(), unix.SIGTERM))
			<-came
			return lock, err
		})
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
