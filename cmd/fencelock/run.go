//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// runCmd runs a command while it holds a lock.
type runCmd struct {
	Nonblock  bool          `short:"n" xor:"wait" help:"Do not wait: exit 75 if the lock is held."`
	Wait      time.Duration `short:"w" xor:"wait" placeholder:"DURATION" help:"Wait at most so long, then exit 75."`
	Conflict  int           `short:"E" name:"conflict-exit-code" default:"75" placeholder:"N" help:"Exit code if the lock is busy."`
	Quiet     bool          `short:"q" name:"quiet-if-busy" help:"If the lock is busy, say nothing and exit 0."`
	Shared    bool          `short:"s" help:"Share the lock with other shared holders."`
	Limit     int           `placeholder:"N" help:"Share the lock with at most N holders in all."`
	TTL       time.Duration `name:"ttl" default:"30s" help:"How long others wait for a holder that vanished."`
	AtLeast   time.Duration `placeholder:"DURATION" help:"Nobody gets the lock again before this is over."`
	OnLost    string        `enum:"terminate,ignore" default:"terminate" help:"What happens to the command if the lock is lost: terminate or ignore (then a sudden end of fencelock leaves it running too)."`
	Signal    string        `default:"TERM" placeholder:"NAME" help:"Signal that asks the command to end."`
	KillAfter time.Duration `short:"k" placeholder:"DURATION" help:"How long it has to end before it is killed; at most TTL/2 - 200ms. Default: 5s, or a third of the TTL."`
	Note      string        `placeholder:"TEXT" help:"Shown to people who list the locks."`
	Close     bool          `short:"o" help:"Do not wait for processes the command leaves behind, and keep the lock's descriptor from it."`

	Name    string   `arg:"" help:"Name of the lock."`
	Command []string `arg:"" passthrough:"partial" name:"cmd" help:"Command and its arguments, after --."`

	signal unix.Signal
}

const (
	shortestTTL  = time.Second
	killReserve  = 100 * time.Millisecond // what the kill at the deadline itself takes
	renewReserve = 200 * time.Millisecond // so that a late renewal is not a loss yet
)

// Validate checks what the parser cannot, and fills in the defaults.
func (c *runCmd) Validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return errors.New("no command to run; write it after --")
	}
	if err := driver.CheckName(c.Name); err != nil {
		return err
	}
	if c.Wait < 0 || c.AtLeast < 0 || c.KillAfter < 0 || c.Limit < 0 {
		return errors.New("durations and limits must not be negative")
	}
	if c.Conflict < 0 || c.Conflict > 255 {
		return fmt.Errorf("the exit code %d is not between 0 and 255", c.Conflict)
	}
	return cmp.Or(c.checkSignal(), c.checkTimes())
}

func (c *runCmd) checkSignal() error {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(c.Signal), "SIG")
	if c.signal = unix.SignalNum(name); c.signal == 0 {
		return fmt.Errorf("there is no signal %q; write a name such as TERM", c.Signal)
	}
	c.Signal = name
	return nil
}

// checkTimes makes sure that a command can be stopped before the lease is over,
// and that a renewal or two may fail before it is.
func (c *runCmd) checkTimes() error {
	if c.TTL < shortestTTL {
		return fmt.Errorf("the TTL %v is shorter than %v", c.TTL, shortestTTL)
	}
	longest := c.TTL/2 - renewReserve
	if c.KillAfter > longest {
		return fmt.Errorf("--kill-after %v is more than %v, half of the TTL less %v; raise --ttl", c.KillAfter, longest, renewReserve)
	}
	if c.KillAfter == 0 {
		c.KillAfter = min(5*time.Second, c.TTL/3, longest)
	}
	return nil
}

// Run looks the command up, takes the lock, runs the command and gives the lock
// back. Its error carries the exit code.
func (c *runCmd) Run(a *app) error {
	path, err := lookup(c.Command[0])
	if err != nil {
		return err
	}
	engine, closeEngine, err := a.open(a.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = closeEngine() }() // the lock was released before, and that was checked
	if engine.Traits().Engine == "memory" {
		a.say("mem: excludes nobody outside this process; use file:///path to exclude others")
	}
	lock, signals, err := c.acquire(a, engine)
	if err != nil {
		return c.refusal(err)
	}
	a.detail("acquired %q, token %d", lock.Name(), lock.Token())
	began := time.Now()
	code, err := c.hold(a, engine, lock, signals, path)
	if freed := giveBack(lock); freed != nil {
		return c.afterLoss(a, code, err, freed)
	}
	a.detail("released %q after %v", lock.Name(), time.Since(began).Round(time.Millisecond))
	return cmp.Or(err, exitWith(code))
}

// hold runs the command under the lock and returns its exit code.
func (c *runCmd) hold(a *app, engine driver.Engine, lock *fencelock.Lock, signals chan os.Signal, path string) (int, error) {
	ch := &child{
		app: a, lock: lock, signals: signals, closing: c.Close, ignoreLoss: c.OnLost == "ignore",
		signal: c.signal, killAfter: c.KillAfter, tick: max(c.TTL/20, 50*time.Millisecond),
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if inheritor, ok := engine.(driver.Inheritor); ok && !c.Close {
		inherited, err := inheritor.Inherit(lock.Lease())
		if err != nil {
			return 0, fmt.Errorf("the command cannot inherit the lock: %w", err)
		}
		files = append(files, inherited...)
	}
	if err := ch.start(path, c.Command, environment(lock), files); err != nil {
		return 0, err
	}
	return ch.supervise(), nil
}

// giveBack releases the lock. One that was lost, perhaps because the engine is
// silent, is not worth a wait beyond the end of its lease.
func giveBack(lock *fencelock.Lock) error {
	deadline := lock.Deadline()
	if lock.Context().Err() == nil || deadline.IsZero() {
		return lock.Release()
	}
	released := make(chan error, 1)
	go func() { released <- lock.Release() }() // ends after the release timeout, or with the process
	select {
	case err := <-released:
		return err
	case <-time.After(time.Until(deadline)):
		return fmt.Errorf("%w: the lease is over", driver.ErrNotHeld)
	}
}

// afterLoss turns a release that failed into the exit code of a lost lock, or a
// word of warning if only the release went wrong.
func (c *runCmd) afterLoss(a *app, code int, ran, freed error) error {
	switch {
	case ran != nil:
		return ran
	case code == exitLost:
		return exitWith(code)
	case errors.Is(freed, driver.ErrNotHeld):
		return &exitError{exitLost, fmt.Errorf("the command ended with code %d, but %w", code, freed)}
	}
	a.say("the command ended, but its lock could not be released: %v", freed)
	return exitWith(code)
}

// exitWith ends the program with the command's own code, in silence.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// environment is ours and what the command may want to know about its lock.
func environment(lock *fencelock.Lock) []string {
	var env []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "FENCELOCK_NAME", "FENCELOCK_TOKEN", "FENCELOCK_OWNER", keeperVariable:
		default:
			env = append(env, kv)
		}
	}
	return append(env,
		"FENCELOCK_NAME="+lock.Name(),
		fmt.Sprintf("FENCELOCK_TOKEN=%d", lock.Token()),
		"FENCELOCK_OWNER="+lock.Owner(),
	)
}
