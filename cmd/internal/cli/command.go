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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// command is what run, elect and once share: a command, the lock that it runs under, and how to
// stop it before the lease expires.
type command struct {
	TTL       time.Duration // at least engineurl.ShortestTTL
	Signal    string        // sent first to stop the command, such as TERM
	KillAfter time.Duration // time from Signal to SIGKILL; byDefault until check
	Note      string        // shown by ls, status and waiters
	PassURL   bool          // set FENCELOCK_URL, which may hold a password, for the command
	Line      string        // for /bin/sh -c, instead of Command
	MaxRun    time.Duration // how long the command may run; 0 is no maximum
	After     time.Duration // time that is needed after a loss, when the command has ended

	Name    string
	Command []string // may begin with -- until check

	signal unix.Signal         // of Signal; set by check
	tty    *supervise.Terminal // shared by all terms of elect; nil before the first
}

// The variables of the environment.
const (
	urlVariable   = "FENCELOCK_URL"
	nameVariable  = "FENCELOCK_NAME"
	tokenVariable = "FENCELOCK_TOKEN"
	ownerVariable = "FENCELOCK_OWNER"
	traceVariable = "TRACEPARENT"
)

// commandVariables describes the environment of a command under a lock.
var commandVariables = Table([]Row{
	{nameVariable, "the name of the lock"},
	{tokenVariable, "its fencing token, greater than that of every earlier holder"},
	{ownerVariable, "the owner id of this acquisition, as fencelock status shows it"},
	{traceVariable, "as in the environment of fencelock, which also stores it with the lock"},
})

// byDefault is the value of --kill-after if it is not given. 0 would mean to kill at once.
const byDefault time.Duration = math.MinInt64

// flags adds the flags that run, elect and once share.
func (c *command) flags(cmd *cobra.Command) {
	withCommand(cmd, &c.Name, &c.Command)
	f := cmd.Flags()
	f.StringVarP(&c.Line, "command", "c", "", "Run `LINE` with /bin/sh -c instead of CMD.")
	Duration(f, &c.TTL, "ttl", defaultTTL, "Lease: how long the lock stays taken if its holder vanishes.")
	f.StringVar(&c.Signal, "signal", "TERM", "`NAME` of the signal to send to the command if the lock is lost.")
	Offer(cmd, "signal", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
	c.KillAfter = byDefault
	f.VarP(duration{&c.KillAfter}, "kill-after", "k",
		"Time from --signal to SIGKILL; 0 kills at once. At most TTL/2 - 200ms. Default: 5s, or a third of the TTL if that is less.")
	f.Lookup("kill-after").DefValue = ""
	f.StringVar(&c.Note, "note", "", "`TEXT` that ls, status and waiting processes show.")
	f.BoolVar(&c.PassURL, "pass-url", false, "Set FENCELOCK_URL, which may hold a password, for the command. Without it, a fencelock in the command uses locks of this host.")
}

// Limits of the durations of a command.
const (
	defaultTTL   = 30 * time.Second
	renewReserve = 200 * time.Millisecond // how late a renewal may be without losing the lock
)

// check validates the flags and sets defaults.
func (c *command) check() (err error) {
	if c.Command, err = commandOf(c.Command, c.Line); err != nil {
		return err
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		return errors.New("the command is missing; write it after --")
	}
	return cmp.Or(driver.CheckName(c.Name), c.checkSignal(), c.checkTimes())
}

// commandOf returns the command to run: words, without a leading "--", or a shell that runs line.
// It returns no command if both are empty, since limit needs none.
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

// checkSignal accepts a signal name in any case, with or without SIG, as kill does.
func (c *command) checkSignal() (err error) {
	c.signal, err = signalOf(c.Signal)
	return err
}

// signalOf returns the signal with a name or number.
func signalOf(name string) (unix.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && unix.SignalName(unix.Signal(n)) != "" {
		return unix.Signal(n), nil
	}
	signal := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if signal == 0 {
		return 0, fmt.Errorf("unknown signal %q; write a name such as TERM", name)
	}
	return signal, nil
}

// checkTimes ensures that the command can be stopped before the lease expires, and that the lock
// survives one or two failed renewals.
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
	if ttl < engineurl.ShortestTTL {
		return fmt.Errorf("--ttl %v is shorter than %v", ttl, engineurl.ShortestTTL)
	}
	return nil
}

// locker returns a Locker whose locks report a loss early enough to stop the command: the grace is
// KillAfter and After plus the time that the kill itself takes. The maximum hold is published with
// the lock; see withoutMax.
func (c *command) locker(engine driver.Engine, o fencelock.Options) *fencelock.Locker {
	o.TTL, o.Note, o.Grace, o.MaxHold = c.TTL, c.Note, c.KillAfter+c.After+supervise.KillReserve, c.MaxRun
	return fencelock.New(engine, nil).With(o)
}

// under returns the supervised command for one acquisition. It has not started. The watchdog gets
// new deadlines more often than the lock is renewed, which is every third of the TTL.
func (c *command) under(a *App, lock *fencelock.Lock, path string, signals chan os.Signal) supervise.Command {
	if c.tty == nil {
		c.tty = supervise.OpenTerminal()
	}
	return supervise.Command{
		Path: path, Args: c.Command, Env: c.environment(a, lock),
		Lock: lock, Signals: signals, Terminal: c.tty, Signal: c.signal, KillAfter: c.KillAfter, MaxRun: c.MaxRun,
		Tick: min(max(c.TTL/20, 50*time.Millisecond), time.Second/2), Say: a.Say,
	}
}

// on finds the command, opens the engine and calls f with both. If the command cannot run, on fails
// before the wait for a lock.
func (c *command) on(a *App, f func(engine driver.Engine, path string) error) error {
	OutliveReaders()
	path := ""
	if len(c.Command) > 0 { // the hooks of elect need no command
		var err error
		if path, err = supervise.Lookup(c.Command[0]); err != nil {
			return c.hintQuotes(err)
		}
	}
	if _, err := supervise.OwnProgram(); err != nil {
		return err // before the wait
	}
	ctx, stop := EndedBySignals(a.Context)
	engine, closeEngine, err := a.open(ctx)
	stop()
	if err == nil {
		defer func() { _ = closeEngine() }() // the lock has been released by then
	}
	if err = cmp.Or(endedBy(ctx), err); err != nil {
		return err
	}
	if engine.Traits().Engine == "memory" {
		a.Say("mem: locks exclude no other process; use file:///path")
	}
	sayDirectory(a, os.Geteuid(), os.Getenv)
	return f(engine, path)
}

// OutliveReaders makes a write to a pipe without a reader return an error instead of ending this
// process. The signal is handled, not ignored, so the command does not inherit the setting.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// hintQuotes adds a hint to the error for a whole command line in quotes.
func (c *command) hintQuotes(err error) error {
	words := c.Command[0]
	if exitCode(err) != supervise.NotFound || len(c.Command) > 1 || !strings.Contains(words, " ") {
		return err
	}
	return Exit(supervise.NotFound, fmt.Errorf("%w; the name contains a space\ntry: -c %s for a shell line, or -- %s without quotes", err, termtext.ShellQuote(words), words))
}

// sayDirectory reports which directory is used if there is no URL, since locks in it exclude
// neither other hosts nor other users.
func sayDirectory(a *App, uid int, env func(string) string) {
	if a.URL != "" {
		return
	}
	if dir, err := engineurl.DefaultDir(uid, env); err == nil {
		who := "this user"
		if uid == 0 {
			who = "root"
		}
		a.Say("using locks of this host, for %s only, in %s; for several hosts set FENCELOCK_URL=redis://..., for several users FENCELOCK_URL=file:///path?group=NAME", who, termtext.Word(dir))
	}
}

// environment returns the environment of the command: that of this process, and the variables of
// the lock.
func (c *command) environment(a *App, lock *fencelock.Lock) []string {
	return append(a.environment(c.PassURL, nameVariable, tokenVariable, ownerVariable),
		nameVariable+"="+lock.Name(),
		fmt.Sprintf("%s=%d", tokenVariable, lock.Token()),
		ownerVariable+"="+lock.Owner(),
	)
}

// environment returns the environment of this process without the given variables. It omits the URL
// unless passURL is set, since the URL may hold a password.
func (a *App) environment(passURL bool, without ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == urlVariable || slices.Contains(without, name)
	})
	if passURL && a.URL != "" {
		env = append(env, urlVariable+"="+a.URL)
	}
	return env
}
