//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
)

// await takes a lock. A signal that asks to end ends the wait; from the grant on,
// signals go to the channel that it returns. One that comes between the two counts for
// both: we end, and no command is started.
func (a *app) await(take func(context.Context) (*fencelock.Lock, error)) (*fencelock.Lock, chan os.Signal, error) {
	ctx, stop := endedBySignals(a.ctx)
	defer stop()
	lock, err := take(ctx)
	signals := supervise.Forwarded()
	stop()
	if ended := endedBy(ctx); ended != nil {
		if err == nil {
			lock.Release() // nothing was started; if this fails, the lease ends
		}
		return nil, nil, ended
	}
	return lock, signals, err
}

// endedBySignals returns a context that supervise.EndSignals end, with the exit code as its cause, which
// endedBy returns. Signals that were ignored from the start stay ignored. Once the
// function that it returns has returned, one that has come counts, and no other is taken.
func endedBySignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	supervise.Notify(signals, supervise.EndSignals...)
	heard := make(chan struct{})
	go func() { // ends at the first signal, or when the wait ends
		defer close(heard)
		if s, ok := <-signals; ok {
			cancel(gaveUp(s))
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals) // what is in it is heard
		<-heard
		cancel(nil)
	})
}

// endedBy is the error of the signal that has ended a context of endedBySignals, nil if none has.
func endedBy(ctx context.Context) error {
	if ended, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
		return ended
	}
	return nil
}

// gaveUp is the end of a wait by a signal.
func gaveUp(s os.Signal) error {
	return &exitError{code: exitSignal + int(s.(unix.Signal)), err: fmt.Errorf("gave up waiting: %v", s), interrupted: s == unix.SIGINT}
}
