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
	Nonblock bool          `short:"n" xor:"wait" help:"Do not wait: exit 75 if the lock is held."`
	Wait     waitLimit     `short:"w" xor:"wait" placeholder:"DURATION" help:"Wait at most so long, then exit 75. A bare number is seconds; 0 is -n."`
	Conflict int           `short:"E" name:"conflict-exit-code" default:"75" placeholder:"N" help:"Exit code if the lock is busy."`
	Quiet    bool          `short:"q" name:"quiet-if-busy" help:"If the lock is busy, say nothing and exit 0."`
	Shared   bool          `short:"s" help:"Share the lock with other shared holders."`
	Limit    int           `placeholder:"N" help:"Share the lock with at most N holders in all."`
	Weight   int           `placeholder:"N" help:"With --limit: take N of it instead of 1."`
	MinHold  time.Duration `aliases:"at-least" placeholder:"DURATION" help:"Nobody gets the lock again before this is over, even if this process dies; break undoes it."`
	Tick     time.Duration `placeholder:"DURATION" help:"Run once per tick of that schedule on all hosts together, such as 1m from their crontabs; exit 75 if another host has claimed the tick."`
	OnLost   string        `enum:"terminate,ignore" default:"terminate" help:"What happens to the command if the lock is lost: terminate or ignore (then a sudden end of fencelock leaves it running too)."`
	Close    bool          `short:"o" help:"Do not wait for processes the command leaves behind, and keep the lock's descriptor from it."`

	command
}

// Validate checks what the parser cannot, and fills in the defaults.
func (c *runCmd) Validate() error { return cmp.Or(c.command.check(), c.checkNumbers()) }

func (c *runCmd) checkNumbers() error {
	switch {
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

// UnmarshalText reads the value of the flag.
func (w *waitLimit) UnmarshalText(text []byte) (err error) {
	w.given = true
	if seconds, bad := strconv.ParseFloat(string(text), 64); bad == nil {
		if !(seconds > -1e9 && seconds < 1e9) {
			return fmt.Errorf("%s seconds are too many", text)
		}
		w.limit = time.Duration(seconds * float64(time.Second))
		return nil
	}
	w.limit, err = time.ParseDuration(string(text))
	return err
}

// Run looks the command up, takes the lock, runs the command and gives the lock
// back. Its error carries the exit code.
func (c *runCmd) Run(a *app) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		line := newWaitLine(a, c.Name)
		locker := c.locker(engine, fencelock.Options{
			Shared:  c.Shared || c.Limit > 0,
			Limit:   c.Limit,
			Weight:  c.Weight,
			Wait:    c.Wait.limit,
			AtLeast: c.MinHold,
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
