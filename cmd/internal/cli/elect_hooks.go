//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// hooks are shell lines that elect runs at the begin and at the end of each term. They run under
// the lock as the command does, with a watchdog each.
type hooks struct {
	OnAcquire, OnLose string
	Timeout           time.Duration // of each; byDefault until check
}

func (h *hooks) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	text(f, &h.OnAcquire, "on-acquire", "Run `LINE` with /bin/sh -c at the begin of each term, before CMD. If it fails, this process resigns.")
	text(f, &h.OnLose, "on-lose", "Run `LINE` with /bin/sh -c at the end of each term, after CMD, also if the lock is lost. The name is released after that.")
	Duration(f, &h.Timeout, "hook-timeout", byDefault,
		"Kill --on-acquire and --on-lose after this time. With --on-lose at most TTL/2 - 200ms - --kill-after. Default: 10s, or that maximum if it is less.")
	f.Lookup("hook-timeout").DefValue = ""
}

// some reports whether there are hooks.
func (h *hooks) some() bool { return h.OnAcquire != "" || h.OnLose != "" }

const defaultHookTimeout = 10 * time.Second

// check validates the timeout and sets the default. longest is the longest timeout with which
// --on-lose ends before the lease of a lost lock.
func (h *hooks) check(longest time.Duration) error {
	given := h.Timeout != byDefault
	if !given {
		h.Timeout = defaultHookTimeout
	}
	switch {
	case given && !h.some():
		return errors.New("--hook-timeout needs --on-acquire or --on-lose")
	case h.Timeout <= 0:
		return fmt.Errorf("--hook-timeout %v is not more than 0", h.Timeout)
	case h.OnLose == "":
		return nil
	case longest <= 0:
		return errors.New("--kill-after leaves no time for --on-lose; raise --ttl")
	case given && h.Timeout > longest:
		return fmt.Errorf("--hook-timeout %v is more than %v, which is TTL/2 - %v - --kill-after; raise --ttl", h.Timeout, longest, renewReserve)
	}
	h.Timeout = min(h.Timeout, longest)
	return nil
}

// acquire runs --on-acquire. If ok is false, the term must end as the outcome says.
func (h *hooks) acquire(a *App, engine driver.Engine, what supervise.Command, lock *fencelock.Lock) (end outcome, ok bool) {
	if h.OnAcquire == "" {
		return outcome{begun: true}, true
	}
	ended, err := h.run(a, "--on-acquire", func(c supervise.Command) (*supervise.Process, error) {
		return begin(engine, lock, c)
	}, h.command(what, h.OnAcquire))
	switch {
	case errors.Is(err, driver.ErrLost):
		return outcome{End: supervise.End{Lost: true}, begun: true, err: err}, false
	case err != nil:
		return outcome{begun: true, refused: true, err: err}, false
	}
	end = outcome{End: a.late(ended, lock), begun: true}
	end.Asked, end.err = end.Passed != 0, Exit(codeOf(end.End), nil)
	if end.Asked && end.err == nil { // the hook ended before the signal, or handled it; the command does not start
		end.err = endedBySignal(end.Passed)
	}
	if err := a.stuck(end.End, lock); err != nil {
		return outcome{End: end.End, begun: true, stuck: true, err: err}, false
	}
	end.refused = end.err != nil && !end.Lost && !end.Asked
	return end, !end.Lost && !end.Asked && !end.refused
}

// lose runs --on-lose. A failure is only reported, since the term ends in any case. The hook keeps
// the files of the lock open, and lose closes them.
func (h *hooks) lose(a *App, what supervise.Command, lock *fencelock.Lock, files []*os.File) {
	if h.OnLose == "" {
		return
	}
	c := h.command(what, h.OnLose)
	c.Inherit = files
	last := &lastLock{lock: lock}
	last.expired = !lock.Deadline().IsZero() && time.Until(lock.Deadline()) <= supervise.KillReserve
	c.Lock, c.Signals = last, nil // a signal that asks to end is handled after the hook
	_, _ = h.run(a, "--on-lose", supervise.Start, c)
}

// command returns a hook as a command. It is killed at its timeout, without another signal before.
func (h *hooks) command(what supervise.Command, line string) supervise.Command {
	what.Path, what.Args = "/bin/sh", []string{"/bin/sh", "-c", line}
	what.Terminal, what.Cancel = nil, nil
	what.Signal, what.KillAfter, what.MaxRun = unix.SIGKILL, 0, h.Timeout
	return what
}

// run runs a hook until every process of it has ended, and reports its failure.
func (h *hooks) run(a *App, flag string, start func(supervise.Command) (*supervise.Process, error), c supervise.Command) (supervise.End, error) {
	c.Say = func(format string, args ...any) { a.Say(flag+": "+format, args...) }
	null, err := os.Open(os.DevNull) // a hook that reads from a terminal would be stopped
	if err == nil {
		defer null.Close()
		c.Input = null
	}
	process, err := start(c)
	if err != nil {
		a.Say("%s: %v", flag, err)
		return supervise.End{}, err
	}
	defer process.Close()
	end := process.Wait()
	if code := codeOf(end); code != 0 && !end.Capped && !end.Lost {
		a.Say("%s exited with code %d", flag, code)
	}
	return end, nil
}

// lastLock is the lock of a term that ends. Its loss does not end the hook, but the watchdog kills
// the hook before the lease is over. If it is over already, as after a freeze of this process, only
// the timeout counts: a late clean-up is better than none.
type lastLock struct {
	lock    *fencelock.Lock
	expired bool
}

// Context returns a context that does not end.
func (l *lastLock) Context() context.Context { return context.Background() }

// Err returns nil.
func (l *lastLock) Err() error { return nil }

// Deadline returns that of the lock, or zero if it has passed.
func (l *lastLock) Deadline() time.Time {
	if l.expired {
		return time.Time{}
	}
	return l.lock.Deadline()
}

// leadWithoutCommand leads until the term ends or a signal asks to end. Then it calls over and releases
// the lock.
func (c *electCmd) leadWithoutCommand(a *App, lock *fencelock.Lock, cancelled context.Context, signals chan os.Signal, over func(error)) outcome {
	end := outcome{begun: true}
	var maxOver <-chan time.Time
	if c.MaxRun > 0 {
		maxOver = time.After(c.MaxRun)
	}
	for !(end.Lost || end.Cancelled || end.Capped || end.Asked) {
		select {
		case <-lock.Context().Done():
			end.Lost = true
			a.Say("%v", context.Cause(lock.Context()))
		case <-cancelled.Done():
			end.Cancelled = true
			a.Say("%v", context.Cause(cancelled))
		case <-maxOver:
			end.Capped = true
		case s := <-signals:
			if end.Asked = slices.Contains(supervise.EndSignals, s); end.Asked {
				end.err = endedBySignal(s.(unix.Signal))
			} else if s == unix.SIGTSTP {
				supervise.StopOwnGroup(signals)
			}
		}
	}
	over(nil)
	if freed := releaseLock(lock); errors.Is(freed, driver.ErrNotHeld) {
		end.Lost = true
	} else if freed != nil {
		a.Say("the lock could not be released: %v", freed)
	}
	return end
}
