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
	"github.com/fencelock/fencelock/memlock"
)

// A signal that comes in the instant of the grant ends the wait, or reaches the command.
func TestSignalInTheInstantOfTheGrant(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // or whoever waits for signals would be the first, nearly always
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
			t.Fatalf("signal %d came to nobody", n)
		}
		signal.Stop(signals)
		must(t, lock.Release())
	}
}
