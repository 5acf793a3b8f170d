//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
)

// runCmd runs a command while it holds a lock. Its flags are those of flock(1), where
// that has them.
type runCmd struct {
	ifBusy
	Quiet   bool          // or none, and no word
	Shared  bool          // beside other shared holders
	Limit   int           // at most so many of them, or so much weight; 0 is no limit
	Weight  int           // what this one takes of it; 0 is 1
	MinHold time.Duration // nobody gets the lock again before this is over
	Tick    time.Duration // of a schedule, which one host of all claims; 0 is no schedule
	OnLost  string        // terminate or ignore
	Close   bool          // what the command leaves behind is nobody's business

	command
	tick tickRun
}

// verb describes run.
func (c *runCmd) verb() *verb {
	*c = runCmd{ifBusy: ifBusy{Conflict: exitBusy}, OnLost: "terminate", command: commonCommand()}
	return &verb{
		name: "run", group: useLocks, short: "Run a command while holding a lock.",
		args: []arg{nameArg(&c.Name)}, runs: &c.Command, flags: c.flags, check: c.check,
		run: c.Run,
		long: `Waits for the lock, runs the command while it is held, and gives it back when the command and all that it started are gone. If the lock is lost, the command is ended before others can get in.

The command is everything it started, also what has left its process group or its session; elsewhere than on Linux it is its process group. A small process, lock-watchdog, is its parent, and kills it if fencelock is killed or frozen. What it cannot kill are processes that became another user: use "sudo fencelock run", not "fencelock run ... sudo". The lock is not given back while such a process lives, but a lease ends. Nor can it reach work that was handed to a service (systemd-run, docker, at), and nobody kills the command if fencelock and lock-watchdog are killed at the same moment. A resource that checks FENCELOCK_TOKEN is safe even then.`,
		examples: []string{
			"fencelock run nightly -- ./backup.sh",
			"fencelock run -n nightly -- ./backup.sh",
			"fencelock run -w 10m --note 'by hand' nightly -- ./backup.sh --full",
			"fencelock run nightly -c 'cd /srv && tar -c data | gzip >/backup/data.tar.gz'",
			"fencelock run --limit 3 builds -- make",
			"fencelock run --tick 1m report -- ./report.sh",
		},
		variables: commandVariables(),
		codes: []explained{
			{"", "the command's own"},
			{"128+n", "the command died of signal n, or signal n came while waiting"},
			{"71", "something of fencelock's own did not start, or its watchdog was killed"},
			{"75", "the lock is busy, or the wait was over; -E and -q change it"},
			{"76", "the lock was lost while the command ran, or before it was started"},
			{"126", "the command cannot be executed"},
			{"127", "the command was not found"},
		},
	}
}

// commandVariables is what a command under a lock finds in its environment.
func commandVariables() []explained {
	return []explained{
		{"FENCELOCK_NAME", "the name of the lock"},
		{"FENCELOCK_TOKEN", "the fencing token: greater than that of every holder before"},
		{ownerVariable, "this acquisition, as fencelock status shows it"},
	}
}

// flags are those of run, and behind them those it shares with elect.
func (c *runCmd) flags(f flagSet) {
	f.add("nonblock", "n", boolean(&c.Nonblock), "Do not wait: exit 75 if the lock is held.")
	f.add("wait", "w", &option{set: c.Wait.set, placeholder: "DURATION", values: []string{"10s", "1m", "10m"}},
		"Wait at most so long, then exit 75. A bare number is seconds; 0 is -n.")
	f.add("conflict-exit-code", "E", number(&c.Conflict), "Exit code if the lock is busy.")
	f.add("quiet-if-busy", "q", boolean(&c.Quiet), "If the lock is busy, say nothing and exit 0.")
	f.add("shared", "s", boolean(&c.Shared), "Share the lock with other shared holders.")
	f.add("limit", "", atLeast(1, &c.Limit, number(&c.Limit)), "Share the lock with at most N holders in all.")
	f.add("weight", "", atLeast(1, &c.Weight, number(&c.Weight)), "With --limit: take N of it instead of 1.")
	f.add("min-hold", "", duration(&c.MinHold, "1m"),
		"Nobody gets the lock again before this is over, even if this process dies; break undoes it.")
	f.add("tick", "", atLeast(time.Second, &c.Tick, duration(&c.Tick, "1m", "5m", "1h", "12h")),
		"Run once per tick of that schedule on all hosts together, such as 1m from their crontabs; exit 75 if another host has claimed the tick. No longer than the shortest time between two runs: 12h for one each day, since a day may have 23 hours.")
	f.add("on-lost", "", choice(&c.OnLost, "WHAT", "terminate", "ignore"),
		"What happens to the command if the lock is lost: terminate or ignore (then a sudden end of fencelock leaves it running too).")
	f.add("close", "o", boolean(&c.Close),
		"Do not wait for processes the command leaves behind, and keep the lock's descriptor from it.")
	c.command.flags(f)
}

// check finds what the parser cannot, and fills in the defaults.
func (c *runCmd) check() error { return cmp.Or(c.command.check(), c.ifBusy.check(), c.checkNumbers()) }

// checkNumbers finds numbers that have no sense, alone or together. A weight above the
// limit would wait for ever.
func (c *runCmd) checkNumbers() error {
	switch {
	case c.Wait.limit < 0 || c.MinHold < 0:
		return errors.New("durations must not be negative")
	case c.Weight > 0 && c.Limit == 0:
		return errors.New("--weight is a part of a limit; give --limit as well")
	case c.Weight > c.Limit:
		return fmt.Errorf("--weight %d is more than --limit %d, so it would never fit", c.Weight, c.Limit)
	}
	return nil
}

// ifBusy says what to do if it is not our turn, for every verb that waits for one.
type ifBusy struct {
	Nonblock bool
	Wait     waitLimit
	Conflict int // exit code if we do not wait, or not for long enough
}

// atOnce reports whether not to wait.
func (b ifBusy) atOnce() bool { return b.Nonblock || b.Wait.given && b.Wait.limit == 0 }

// check finds what the parser cannot.
func (b ifBusy) check() error {
	switch {
	case b.Nonblock && b.Wait.given:
		return errors.New("--nonblock and --wait can't be used together")
	case b.Conflict < 0 || b.Conflict > 255:
		return fmt.Errorf("the exit code %d is not between 0 and 255", b.Conflict)
	}
	return nil
}

// waitLimit is a duration, or a number of seconds as flock has it. Nothing and zero are
// two things: to wait for ever, and not at all.
type waitLimit struct {
	given bool
	limit time.Duration
}

// set reads the value of the flag. What does not fit into a duration would wrap around.
func (w *waitLimit) set(s string) (err error) {
	w.given = true
	if seconds, bad := strconv.ParseFloat(s, 64); bad == nil {
		if !(seconds > -1e9 && seconds < 1e9) {
			return fmt.Errorf("%s seconds are too many", s)
		}
		w.limit = time.Duration(seconds * float64(time.Second))
		return nil
	}
	if w.limit, err = time.ParseDuration(s); err != nil {
		err = notDuration(s)
	}
	return err
}

// Run looks the command up, takes the lock, runs the command and gives the lock
// back. Its error carries the exit code.
func (c *runCmd) Run(a *app) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		line := newWaitLine(a, c.Name, logEvery)
		locker := c.locker(engine, fencelock.Options{
			Shared:  c.Shared || c.Limit > 0, // a limit is one of shared holders
			Limit:   c.Limit,
			Weight:  c.Weight,
			Wait:    c.Wait.limit,
			MinHold: c.MinHold,
			OnWait:  line.update,
		})
		lock, signals, err := a.await(c.taker(engine, locker))
		line.stop()
		if err != nil {
			c.tick.finish(err) // a signal may have come after the run began
			return c.refusal(err)
		}
		what := c.under(a, lock, path, signals)
		what.IgnoreOrphans, what.IgnoreLoss = c.Close, c.OnLost == "ignore"
		what.Hint = ", which -o would not"
		return a.hold(engine, lock, what, c.tick.finish).err
	})
}

// taker claims the tick, if there is one, and takes the lock, in a queue or not at all. The
// tick is claimed whether the lock is free or not: with -n, one that comes while the run
// of the last one goes on is skipped on every host.
func (c *runCmd) taker(engine driver.Engine, locker *fencelock.Locker) func(context.Context) (*fencelock.Lock, error) {
	take := locker.Acquire
	if c.atOnce() {
		take = locker.TryAcquire
	}
	if c.Tick == 0 {
		return func(ctx context.Context) (*fencelock.Lock, error) { return take(ctx, c.Name) }
	}
	return c.tick.taker(cron.New(c.locker(engine, fencelock.Options{}), c.Name, &cron.Config{Skew: c.Tick / 2, Late: c.Tick / 2}), c.Tick, take)
}

// refusal says why there is no lock, and what to do about it. Only a lock that is held is
// busy: an engine out of reach keeps its own code, with -q too, or a job that skips when
// it is busy would skip for ever.
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
	hint := fmt.Sprintf("%s %s -- ..., or fencelock status %[2]s", wait, termtext.ShellWord(c.Name))
	return &exitError{code: c.Conflict, err: fmt.Errorf("%s\ntry: %s", who, hint)}
}
