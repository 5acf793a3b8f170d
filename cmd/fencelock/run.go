//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// runCmd runs a command while it holds a lock.
type runCmd struct {
	Nonblock bool
	Wait     waitLimit
	Conflict int
	Quiet    bool
	Shared   bool
	Limit    int
	Weight   int
	MinHold  time.Duration
	Tick     time.Duration
	OnLost   string
	Close    bool

	command
}

func newRun() *runCmd {
	return &runCmd{Conflict: exitBusy, OnLost: "terminate", command: commonCommand()}
}

func (c *runCmd) verb() *verb {
	return &verb{
		name: "run", group: useLocks, short: "Run a command while holding a lock.",
		args: []arg{nameArg(&c.Name)}, runs: &c.Command, flags: c.flags, check: c.check,
		run:  c.Run,
		long: `Waits for the lock, runs the command while it is held, and gives it back when the command and all that it started are gone. If the lock is lost, the command is ended before others can get in.`,
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
			{"71", "something of fencelock's own did not start"},
			{"75", "the lock is busy, or the wait was over; -E and -q change it"},
			{"76", "the lock was lost while the command ran"},
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

func (c *runCmd) flags(f flagSet) {
	f.add("nonblock", "n", boolean(&c.Nonblock), "Do not wait: exit 75 if the lock is held.")
	f.add("wait", "w", &option{set: c.Wait.set, placeholder: "DURATION", values: []string{"10s", "1m", "10m"}},
		"Wait at most so long, then exit 75. A bare number is seconds; 0 is -n.")
	f.add("conflict-exit-code", "E", number(&c.Conflict), "Exit code if the lock is busy.")
	f.add("quiet-if-busy", "q", boolean(&c.Quiet), "If the lock is busy, say nothing and exit 0.")
	f.add("shared", "s", boolean(&c.Shared), "Share the lock with other shared holders.")
	f.add("limit", "", number(&c.Limit), "Share the lock with at most N holders in all.")
	f.add("weight", "", number(&c.Weight), "With --limit: take N of it instead of 1.")
	f.add("min-hold", "", duration(&c.MinHold, "1m"),
		"Nobody gets the lock again before this is over, even if this process dies; break undoes it.")
	f.add("tick", "", duration(&c.Tick, "1m", "5m", "1h", "24h"),
		"Run once per tick of that schedule on all hosts together, such as 1m from their crontabs; exit 75 if another host has claimed the tick.")
	f.add("on-lost", "", choice(&c.OnLost, "WHAT", "terminate", "ignore"),
		"What happens to the command if the lock is lost: terminate or ignore (then a sudden end of fencelock leaves it running too).")
	f.add("close", "o", boolean(&c.Close),
		"Do not wait for processes the command leaves behind, and keep the lock's descriptor from it.")
	c.command.flags(f)
}

// check finds what the parser cannot, and fills in the defaults.
func (c *runCmd) check() error { return cmp.Or(c.command.check(), c.checkNumbers()) }

func (c *runCmd) checkNumbers() error {
	switch {
	case c.Nonblock && c.Wait.given:
		return errors.New("--nonblock and --wait can't be used together")
	case c.Wait.limit < 0 || c.MinHold < 0 || c.Limit < 0 || c.Weight < 0:
		return errors.New("durations, limits and weights must not be negative")
	case c.Tick != 0 && c.Tick < time.Second:
		return fmt.Errorf("the tick %v is shorter than a second", c.Tick)
	case c.Conflict < 0 || c.Conflict > 255:
		return fmt.Errorf("the exit code %d is not between 0 and 255", c.Conflict)
	case c.Weight > 0 && c.Limit == 0:
		return errors.New("--weight is a part of a limit; give --limit as well")
	case c.Weight > c.Limit:
		return fmt.Errorf("--weight %d is more than --limit %d, so it would never fit", c.Weight, c.Limit)
	}
	return nil
}

// waitLimit is a duration, or a number of seconds as flock has it.
type waitLimit struct {
	given bool
	limit time.Duration
}

// set reads the value of the flag.
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
			Shared:  c.Shared || c.Limit > 0,
			Limit:   c.Limit,
			Weight:  c.Weight,
			Wait:    c.Wait.limit,
			MinHold: c.MinHold,
			OnWait:  line.update,
		})
		lock, signals, err := a.await(c.taker(engine, locker))
		line.stop()
		if err != nil {
			return c.refusal(err)
		}
		ch := c.child(a, lock, signals)
		ch.closing, ch.ignoreLoss = c.Close, c.OnLost == "ignore"
		return ch.hold(engine, path, c.Command).err
	})
}
