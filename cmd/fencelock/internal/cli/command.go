//go:build unix

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// command is what run, elect and once share: a command, the lock it runs under, and how
// it is made to end before the lease does.
type command struct {
	TTL       time.Duration // of the lease; at least shortestTTL
	Signal    string        // that asks the command to end, such as TERM
	KillAfter time.Duration // how long it has to end; byDefault before check
	Note      string        // shown to people
	PassURL   bool          // the command gets FENCELOCK_URL, with the password in it
	Line      string        // for a shell, in the place of Command

	Name    string
	Command []string // what follows after --, and after check the words of the program

	signal unix.Signal         // Signal, once it was checked
	tty    *supervise.Terminal // that of all terms of elect; nil before the first
}

// The variables of the environment.
const (
	urlVariable   = "FENCELOCK_URL"
	nameVariable  = "FENCELOCK_NAME"
	tokenVariable = "FENCELOCK_TOKEN"
	ownerVariable = "FENCELOCK_OWNER"
)

// commandVariables is what a command under a lock finds in its environment.
var commandVariables = table([]explained{
	{nameVariable, "the name of the lock"},
	{tokenVariable, "its fencing token, greater than that of every earlier holder"},
	{ownerVariable, "the owner id of this acquisition, as fencelock status shows it"},
})

// byDefault is no duration that anybody can mean: zero kills at once.
const byDefault time.Duration = math.MinInt64

// flags adds the flags that run, elect and once share.
func (c *command) flags(cmd *cobra.Command) {
	withCommand(cmd, &c.Name, &c.Command)
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.Line, "command", "c", "", "Run `LINE` with /bin/sh -c instead of CMD.")
	f.DurationVar(&c.TTL, "ttl", defaultTTL, "Lease: how long the lock stays taken if its holder vanishes.")
	offer(cmd, "ttl", 0, "10s", "30s", "1m")
	f.StringVar(&c.Signal, "signal", "TERM", "`NAME` of the signal to send to the command if the lock is lost.")
	offer(cmd, "signal", 0, "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
	f.DurationVarP(&c.KillAfter, "kill-after", "k", byDefault,
		"Time from --signal to SIGKILL; 0 kills at once. At most TTL/2 - 200ms. Default: 5s, or a third of the TTL if that is less.")
	f.Lookup("kill-after").DefValue = ""
	offer(cmd, "kill-after", 0, "5s")
	f.StringVar(&c.Note, "note", "", "`TEXT` that ls, status and waiting processes show.")
	f.BoolVar(&c.PassURL, "pass-url", false, "Set FENCELOCK_URL, which may hold a password, for the command. Without it, a fencelock in the command uses locks of this host.")
}

// What the times of a command may be.
const (
	defaultTTL   = 30 * time.Second
	shortestTTL  = time.Second            // a busy machine cannot end a command in less
	renewReserve = 200 * time.Millisecond // so that a late renewal is not a loss yet
)

// check finds what the parser cannot, and fills in the defaults.
func (c *command) check() (err error) {
	if c.Command, err = commandOf(c.Command, c.Line); err != nil {
		return err
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return errors.New("the command is missing; write it after --")
	}
	return cmp.Or(driver.CheckName(c.Name), c.checkSignal(), c.checkTimes())
}

// commandOf returns the command to run, given as words, perhaps behind "--", or as a line
// for the shell. None at all is the caller's to refuse: limit needs none.
func commandOf(words []string, line string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	switch {
	case line != "" && len(words) > 0:
		return nil, errors.New("two commands are given; write one, after -- or after -c")
	case line != "":
		return []string{"/bin/sh", "-c", line}, nil
	}
	return words, nil
}

// checkSignal takes a signal with SIG before it and without, in any case, as kill does.
func (c *command) checkSignal() error {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(c.Signal), "SIG")
	if c.signal = unix.SignalNum(name); c.signal == 0 {
		return fmt.Errorf("unknown signal %q; write a name such as TERM", c.Signal)
	}
	c.Signal = name
	return nil
}

// checkTimes makes sure that a command can be stopped before the lease is over,
// and that a renewal or two may fail before it is.
func (c *command) checkTimes() error {
	if err := checkTTL(c.TTL); err != nil {
		return err
	}
	longest := c.TTL/2 - renewReserve
	if c.KillAfter == byDefault {
		c.KillAfter = min(5*time.Second, c.TTL/3, longest)
	}
	if c.KillAfter < 0 {
		return errors.New("--kill-after is negative")
	}
	if c.KillAfter > longest {
		return fmt.Errorf("--kill-after %v is more than %v, which is TTL/2 - %v; raise --ttl", c.KillAfter, longest, renewReserve)
	}
	return nil
}

// checkTTL refuses a TTL that is too short.
func checkTTL(ttl time.Duration) error {
	if ttl < shortestTTL {
		return fmt.Errorf("--ttl %v is shorter than %v", ttl, shortestTTL)
	}
	return nil
}

// locker makes locks whose contexts end while there is still time to kill: the grace is
// what the command has to end, and what the kill itself takes.
func (c *command) locker(engine driver.Engine, o fencelock.Options) *fencelock.Locker {
	o.TTL, o.Note, o.Grace = c.TTL, c.Note, c.KillAfter+supervise.KillReserve
	return fencelock.New(engine, nil).With(o)
}

// under returns the command, not started yet, for one acquisition. The watchdog is told
// new deadlines more often than the lock is renewed, a third of the TTL apart.
func (c *command) under(a *app, lock *fencelock.Lock, path string, signals chan os.Signal) supervise.Command {
	if c.tty == nil {
		c.tty = supervise.OpenTerminal()
	}
	return supervise.Command{
		Path: path, Args: c.Command, Env: c.environment(a, lock),
		Lock: lock, Signals: signals, Terminal: c.tty, Signal: c.signal, KillAfter: c.KillAfter,
		Tick: min(max(c.TTL/20, 50*time.Millisecond), time.Second/2), Say: a.say,
	}
}

// on finds the command, opens the engine, and runs f with both. What is wrong with the
// command is told before anybody waits for a lock.
func (c *command) on(a *app, f func(engine driver.Engine, path string) error) error {
	outliveReaders()
	path, err := supervise.Lookup(c.Command[0])
	if err != nil {
		return c.unquoted(err)
	}
	if err := supervise.Ready(); err != nil {
		return err // before a wait, and not after it
	}
	ctx, stop := endedBySignals(a.ctx)
	engine, closeEngine, err := a.open(ctx)
	stop()
	if ended := endedBy(ctx); ended != nil {
		err = ended
		if closeEngine != nil {
			_ = closeEngine()
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = closeEngine() }() // the lock was released before, and that was checked
	if engine.Traits().Engine == "memory" {
		a.say("mem: locks exclude no other process; use file:///path")
	}
	sayDirectory(a, os.Geteuid(), os.Getenv)
	return f(engine, path)
}

// outliveReaders keeps a write to a pipe without a reader from ending us. The signal
// is handled and not ignored, so that the command gets it as usual.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// unquoted tells those who have quoted a whole command line how to write it.
func (c *command) unquoted(err error) error {
	words := c.Command[0]
	if exitCode(err) != exitNotFound || len(c.Command) > 1 || !strings.Contains(words, " ") {
		return err
	}
	return &exitError{code: exitNotFound, err: fmt.Errorf("%w; the name contains a space\ntry: -c %s for a shell line, or -- %s without quotes", err, termtext.ShellQuote(words), words)}
}

// sayDirectory tells where the locks are if nobody has chosen that: another host has locks of its
// own, and so has another user. Neither is excluded.
func sayDirectory(a *app, uid int, env func(string) string) {
	if a.url != "" {
		return
	}
	if dir, err := engineurl.DefaultDir(uid, env); err == nil {
		who := "this user"
		if uid == 0 {
			who = "root"
		}
		a.say("using locks of this host, for %s only, in %s; for several hosts set FENCELOCK_URL=redis://..., for several users FENCELOCK_URL=file:///path?group=NAME", who, termtext.Word(dir))
	}
}

// environment is ours, with what the command may want to know about its lock.
func (c *command) environment(a *app, lock *fencelock.Lock) []string {
	return append(a.environment(c.PassURL, nameVariable, tokenVariable, ownerVariable),
		nameVariable+"="+lock.Name(),
		fmt.Sprintf("%s=%d", tokenVariable, lock.Token()),
		ownerVariable+"="+lock.Owner(),
	)
}

// environment is ours without some variables. The URL is one of those, unless it is asked for: it
// may hold a password.
func (a *app) environment(passURL bool, without ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == urlVariable || slices.Contains(without, name)
	})
	if passURL && a.url != "" {
		env = append(env, urlVariable+"="+a.url)
	}
	return env
}
