//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
)

// taker claims the tick, if there is one, and takes the lock, in a queue or not at all.
func (c *runCmd) taker(engine driver.Engine, locker *fencelock.Locker) func(context.Context) (*fencelock.Lock, error) {
	take := locker.Acquire
	if c.atOnce() {
		take = locker.TryAcquire
	}
	return func(ctx context.Context) (*fencelock.Lock, error) {
		if c.Tick > 0 {
			if err := c.claim(ctx, engine); err != nil {
				return nil, err
			}
		}
		return take(ctx, c.Name)
	}
}

// claim claims the tick that is nearest by this host's clock: others mean the same one
// if their clocks and their crontabs are less than half a tick apart.
func (c *runCmd) claim(ctx context.Context, engine driver.Engine) error {
	job := cron.New(c.locker(engine, fencelock.Options{}), c.Name, &cron.Config{Skew: c.Tick / 2, Late: c.Tick / 2})
	err := job.Claim(ctx, time.Now().Round(c.Tick))
	if errors.Is(err, cron.ErrSkipped) {
		return fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return err
}

// atOnce reports whether not to wait.
func (c *runCmd) atOnce() bool { return c.Nonblock || c.Wait.given && c.Wait.limit == 0 }

// refusal says why there is no lock, and what to do about it.
func (c *runCmd) refusal(err error) error {
	if !errors.Is(err, driver.ErrHeld) {
		return err
	}
	if c.Quiet {
		return exitWith(0)
	}
	if skipped, ok := errors.AsType[*cron.SkippedError](err); ok {
		return &exitError{code: c.Conflict, err: skipped}
	}
	who := err.Error()
	if held, ok := errors.AsType[*fencelock.HeldError](err); ok {
		who = held.Error()
	}
	wait := "fencelock run -w 30s"
	if !c.atOnce() {
		who += fmt.Sprintf("; gave up after %v", c.Wait.limit)
		wait = fmt.Sprintf("fencelock run -w %v", 2*c.Wait.limit)
	}
	hint := fmt.Sprintf("%s %s -- ..., or fencelock status %[2]s", wait, showWord(c.Name))
	return &exitError{code: c.Conflict, err: fmt.Errorf("%s\ntry: %s", who, hint)}
}

// showWord quotes a name for a shell, if it needs that.
func showWord(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,") == "" {
		return name
	}
	return quote(name)
}

// await takes a lock. A signal that asks to end ends the wait; from the grant on,
// signals go to the channel that it returns.
func (a *app) await(take func(context.Context) (*fencelock.Lock, error)) (*fencelock.Lock, chan os.Signal, error) {
	ctx, stop := interruptible(a.ctx)
	defer stop()
	lock, err := take(ctx)
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
			cancel(gaveUp(s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

func gaveUp(s os.Signal) error {
	return &exitError{code: exitSignal + int(s.(unix.Signal)), err: fmt.Errorf("gave up waiting: %v", s), interrupted: s == unix.SIGINT}
}
