//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// acquire takes the lock. A signal that asks to end ends the wait; from the grant
// on, signals go to the channel that it returns.
func (c *runCmd) acquire(a *app, engine driver.Engine) (*fencelock.Lock, chan os.Signal, error) {
	ctx, stop := interruptible(a.ctx)
	defer stop()
	line := newWaitLine(a, c.Name)
	defer line.stop()
	locker := fencelock.New(engine, &fencelock.Config{TTL: c.TTL, Note: c.Note}).With(fencelock.Options{
		Shared:  c.Shared || c.Limit > 0,
		Limit:   c.Limit,
		Wait:    c.Wait,
		AtLeast: c.AtLeast,
		Grace:   c.KillAfter + killReserve,
		OnWait:  line.update,
	})
	take := locker.Acquire
	if c.Nonblock {
		take = locker.TryAcquire
	}
	lock, err := take(ctx, c.Name)
	signals := forwarded()
	stop()
	if stopped, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
		if err == nil {
			lock.Release() // nothing was started; if this fails, the lease ends
		}
		return nil, nil, stopped
	}
	return lock, signals, err
}

// refusal says why there is no lock, and what to do about it.
func (c *runCmd) refusal(err error) error {
	if !errors.Is(err, driver.ErrHeld) {
		return err
	}
	if c.Quiet {
		return exitWith(0)
	}
	who := err.Error()
	if held, ok := errors.AsType[*fencelock.HeldError](err); ok {
		who = held.Error()
	}
	wait := "fencelock run -w 30s"
	if !c.Nonblock {
		who += fmt.Sprintf("; gave up after %v", c.Wait)
		wait = fmt.Sprintf("fencelock run -w %v", 2*c.Wait)
	}
	hint := fmt.Sprintf("%s %s -- ..., or fencelock status %[2]s", wait, showWord(c.Name))
	return &exitError{c.Conflict, fmt.Errorf("%s\ntry: %s", who, hint)}
}

// showWord quotes a name for a shell, if it needs that.
func showWord(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,") == "" {
		return name
	}
	return quote(name)
}

// interruptible returns a context that INT, TERM, HUP and QUIT end, with the
// exit code as its cause. Signals that were ignored from the start stay ignored.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() { // ends when the wait ends
		select {
		case s := <-signals:
			code := exitSignal + int(s.(unix.Signal))
			cancel(&exitError{code, fmt.Errorf("gave up waiting: %v", s)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
