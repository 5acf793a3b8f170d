//go:build unix

package main

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// electCmd runs a command while this process is the leader.
type electCmd struct {
	Restart bool

	command

	reached atomic.Bool    // the engine has answered
	last    chan os.Signal // heard the signals of the last term
	pause   time.Duration  // before the next campaign
	fails   int            // terms in a row whose command failed at once
}

func newElect() *electCmd { return &electCmd{command: commonCommand()} }

func (c *electCmd) verb() *verb {
	return &verb{
		name: "elect", group: useLocks, short: "Keep a command running while this process is the leader.",
		args: []arg{nameArg(&c.Name)}, runs: &c.Command, check: c.check, run: c.Run,
		flags: func(f flagSet) {
			f.add("restart", "", boolean(&c.Restart), "When the command ends by itself, campaign again, behind the others. By default elect ends with it.")
			c.flags(f)
		},
		long: `Of all processes that do this for one name, one runs the command, and the others stand by. A leader that is stopped is followed at once, one that vanished when its TTL is over. A leader that loses the lock ends its command before anyone else leads, and stands by again; it also does when the engine comes back after an outage. The command finds its term in FENCELOCK_TOKEN: only greater ones follow.

With --restart, a command that ends by itself gives the others their turn; if it fails at once over and over, its process stands back for longer each time, up to a minute.`,
		examples: []string{
			"fencelock elect billing -- ./billing",
			"fencelock elect --ttl 10s --restart billing -- ./billing",
			"fencelock status billing",
		},
		variables: commandVariables(),
		codes: []explained{
			{"", "the command's own, also after INT, TERM or HUP, which are passed on to it"},
			{"128+n", "signal n came while standing by, or the command died of it"},
			{"71", "something of fencelock's own did not start"},
			{"126", "the command cannot be executed"},
			{"127", "the command was not found"},
		},
	}
}

// Run campaigns and leads until the command ends by itself or a signal ends it.
// Its error carries the exit code.
func (c *electCmd) Run(a *app) error {
	return c.on(a, func(engine driver.Engine, path string) error {
		for {
			again, err := c.term(a, engine, path)
			if !again {
				return err
			}
		}
	})
}

// term is one campaign and what it won. It reports whether there is another one to
// come; if not, its error carries the exit code.
func (c *electCmd) term(a *app, engine driver.Engine, path string) (again bool, err error) {
	lock, signals, err := c.campaign(a, engine)
	if err != nil {
		return false, err
	}
	a.say("leading %q, token %d", c.Name, lock.Token())
	began := time.Now()
	end := c.child(a, lock, signals).hold(engine, path, c.Command)
	c.last = signals
	switch {
	case end.asked || !end.begun:
		return false, end.err
	case end.lost:
		c.pause, c.fails = 0, 0
		a.say("campaigning for %q again", c.Name)
		return true, nil
	case !c.Restart:
		return false, end.err
	}
	c.rest(end.err != nil && time.Since(began) < settled)
	a.say("the command ended with code %d; campaigning for %q again in %v", exitCode(end.err), c.Name, c.pause)
	return true, nil
}

const (
	settled      = 10 * time.Second // a command that fails later did not fail at once
	shortestRest = time.Second      // so that others get their turn
	longestRest  = time.Minute
)

// rest sets the pause after a command that ended by itself: longer each time it
// failed at once.
func (c *electCmd) rest(failed bool) {
	if !failed {
		c.fails, c.pause = 0, shortestRest
		return
	}
	c.pause = min(shortestRest<<min(c.fails, 10), longestRest)
	c.fails++
}
