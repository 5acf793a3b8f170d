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
	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// await acquires a lock. A signal that asks to end ends the wait. After the grant, signals go to
// the returned channel. If a signal arrives in between, await calls undo, unless it is nil, releases
// the lock and returns the error of the signal.
func (a *App) await(take func(context.Context) (*fencelock.Lock, error), undo func(error)) (*fencelock.Lock, chan os.Signal, error) {
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	lock, err := take(ctx)
	signals := supervise.Forwarded()
	stop()
	if ended := endedBy(ctx); ended != nil {
		if err == nil {
			if undo != nil {
				undo(ended)
			}
			lock.Release() // nothing was started; if this fails, the lease expires
		}
		return nil, nil, ended
	}
	return lock, signals, err
}

// EndedBySignals returns a context that is cancelled by supervise.EndSignals, with an exitError as
// the cause. Signals that were ignored at the start stay ignored. The returned function stops the
// listener; later signals have no effect on the context.
func EndedBySignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	supervise.Notify(signals, supervise.EndSignals...)
	drained := make(chan struct{})
	go func() { // ends at the first signal, or when the wait ends
		defer close(drained)
		if s, ok := <-signals; ok {
			cancel(gaveUp(s))
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals) // a signal in it is still read
		<-drained
		cancel(nil)
	})
}

// endedBy returns the error of the signal that cancelled a context of EndedBySignals, or nil.
func endedBy(ctx context.Context) error {
	if ended, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
		return ended
	}
	return nil
}

// Ended is endedBy with another message, or with none if text is nil.
func Ended(ctx context.Context, text error) error {
	if e, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
		return &exitError{code: e.code, err: text, interrupted: e.interrupted}
	}
	return nil
}

// gaveUp returns the error of a wait that a signal ended.
func gaveUp(s os.Signal) error {
	return &exitError{code: exitSignal + int(s.(unix.Signal)), err: fmt.Errorf("gave up waiting: %v", s), interrupted: s == unix.SIGINT}
}
