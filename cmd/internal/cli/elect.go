//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/internal/retry"
)

// electCmd is the verb elect. A term is one acquisition of the lock; a process may have several,
// one after the other.
type electCmd struct {
	Restart bool   // campaign again after the command has ended by itself
	Health  string // address for probes; "" means none
	Rank    int
	Settle  time.Duration

	command
	hooks hooks

	health health
	held   *election.Term // the latest term
	last   chan os.Signal // the signals of the last term
	pause  time.Duration  // before the next campaign
	fails  int            // terms in a row whose command failed at once
}

func newElect(a *App) *cobra.Command {
	c := new(electCmd)
	cmd := &cobra.Command{
		Use: "elect [flags] NAME [-- CMD [ARG]...]", GroupID: useLocks, Short: "Run a command while this process is the leader.", SuggestFor: []string{"leader"},
		Long: `Of all processes that run elect with the same NAME, one is the leader and runs the command; the others wait. When the leader is stopped, the next one leads at once. When the leader vanishes, the next one leads when its TTL is over at the latest. A leader that loses the lock stops its command before another one leads, and then waits for the lock again. Each later leader has a greater FENCELOCK_TOKEN.

If the server is unreachable at the start, elect exits with 69. After that it retries during an outage of the server.

With --on-acquire and --on-lose, shell lines run at the begin and at the end of each term, and CMD is optional. They have the environment and the output of the command, and no input. --on-lose also runs after a failed --on-acquire. If fencelock is killed, no hook runs.

With --rank, the best of the processes that wait leads next, and a leader resigns to a better one that has waited for the time of --settle. One that fails soon after that is not preferred again for twice that time, and then for longer and longer.

With --restart, elect campaigns again after its command has ended by itself, behind the others. If the command keeps failing at once, elect pauses before each campaign, up to a minute.`,
		Example: `fencelock elect billing -- ./billing
fencelock elect --ttl 10s --restart billing -- ./billing
fencelock elect --on-acquire 'ip addr add 10.0.0.5/24 dev eth0' \
  --on-lose 'ip addr del 10.0.0.5/24 dev eth0' vip
fencelock elect --rank 1 billing -- ./billing
fencelock status billing`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{nameRow, commandRow}),
			variables:    commandVariables,
			ExitCodes: Table([]Row{
				{"", "the exit code of the command, also after INT, TERM or HUP, which are passed to it; or one of these:"},
				{"128+n", "signal n arrived during the wait, or killed the command"},
				{"71", "fencelock could not start its watchdog or get another resource"},
			}),
		},
		ValidArgsFunction: completeCommand(a.lockNames), PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Restart, "restart", false, "After the command has ended by itself, campaign again, behind the others. Without it, elect ends with the command.")
	cmd.Flags().Func("health", "Answer probes on `ADDRESS`, such as 127.0.0.1:8081: /leader (200 or 503), /ready, /metrics.", func(s string) error {
		c.Health = s
		return checkAddress(s)
	})
	atLeast(cmd.Flags(), &c.MaxRun, "max-term", positive, "Stop a command that leads for longer than `DURATION` with --signal, then SIGKILL, and campaign again, behind the others.")
	c.hooks.flags(cmd)
	Number(cmd.Flags(), &c.Rank, "rank", 0, "Preference for this process; 0 is best.")
	atLeast(cmd.Flags(), &c.Settle, "settle", time.Second, "How long a process of a better rank must wait before this leader resigns to it: a `DURATION` of at least 1s. Default: 30s.")
	c.command.flags(cmd)
	return cmd
}

// check validates the flags and sets defaults. After a loss, --on-lose has its whole timeout within
// the lease, after the time in which the command ends.
func (c *electCmd) check() error {
	longest := c.TTL/2 - renewReserve
	if c.hooks.OnLose != "" && c.KillAfter == byDefault {
		c.KillAfter = max(0, min(5*time.Second, c.TTL/3, longest/2))
	}
	var err error
	if words, bad := commandOf(c.Command, c.Line); bad == nil && len(words) == 0 && c.hooks.some() {
		if c.Command = nil; c.Restart {
			return errors.New("--restart needs a command")
		}
		err = cmp.Or(driver.CheckName(c.Name), c.checkSignal(), c.checkTimes())
	} else {
		err = c.command.check()
	}
	if err = cmp.Or(err, c.hooks.check(longest-c.KillAfter)); err == nil && c.hooks.OnLose != "" {
		c.After = c.hooks.Timeout
	}
	return err
}

// Run campaigns and leads, term after term on one engine, until the command ends by itself or a
// signal ends it. Its error carries the exit code.
func (c *electCmd) Run(a *App) error {
	return c.on(a, func(engine driver.Engine, path string) error { return c.lead(a, engine, path) })
}

// lead is Run on an engine that is open.
func (c *electCmd) lead(a *App, engine driver.Engine, path string) error {
	campaign := c.campaigns(a, engine)
	stop, err := c.health.serve(a, c.Health)
	if err != nil {
		return err
	}
	defer stop()
	for {
		if again, err := c.term(a, engine, path, campaign); !again {
			return err
		}
	}
}

// term campaigns once and leads if it wins. It reports whether another term follows; if not, its
// error carries the exit code.
func (c *electCmd) term(a *App, engine driver.Engine, path string, campaign func(context.Context) (*fencelock.Lock, error)) (again bool, err error) {
	lock, signals, err := a.await(campaign, nil)
	if err != nil {
		return false, err
	}
	a.Say("leading %q, token %d", c.Name, lock.Token())
	c.health.terms.Add(1)
	began := time.Now()
	end := c.runTerm(a, engine, lock, path, signals)
	c.last = signals
	if end.Lost {
		c.health.lost.Add(1)
	}
	switch {
	case end.Asked || end.stuck || !end.begun && !end.Lost: // a command that could not be started would fail again
		return false, end.err
	case end.Lost || end.Cancelled: // not the fault of the command, so there is no pause
		c.pause, c.fails = 0, 0
		if !end.begun {
			a.Say("%v", end.err)
		}
		a.Say("campaigning for %q again", c.Name)
		return true, nil
	case end.refused:
		c.setPause(true)
		a.Say("resigning; campaigning for %q again in %v", c.Name, c.pause)
		return true, nil
	case end.Capped:
		c.setPause(false)
		a.Say("the term is over; campaigning for %q again in %v", c.Name, c.pause)
		return true, nil
	case !c.Restart:
		return false, end.err
	}
	c.setPause(end.err != nil && time.Since(began) < settled)
	a.Say("the command exited with code %d; campaigning for %q again in %v", exitCode(end.err), c.Name, c.pause)
	return true, nil
}

// runTerm runs the hooks and the command of one term, and releases the lock.
func (c *electCmd) runTerm(a *App, engine driver.Engine, lock *fencelock.Lock, path string, signals chan os.Signal) outcome {
	what := c.under(a, lock, path, signals)
	what.Cancel = resignationOf(c.held)
	var last []*os.File
	var err error
	if c.hooks.OnLose != "" { // now: when the lock was lost, they cannot be had any more
		last, err = filesOf(engine, lock)
	}
	if err != nil {
		_ = releaseLock(lock) // nothing runs; if this fails, the lease expires
		return outcome{End: supervise.End{Lost: errors.Is(err, driver.ErrLost)}, err: err}
	}
	lose := func(error) { c.hooks.lose(a, what, lock, last) }
	if end, ok := c.hooks.acquire(a, engine, what, lock); !ok {
		lose(nil)
		if !end.stuck {
			_ = releaseLock(lock) // if this fails, the lease expires
		}
		return end
	}
	if len(c.Command) == 0 {
		return c.leadWithoutCommand(a, lock, what.Cancel, signals, lose)
	}
	return a.hold(engine, lock, what, func() {}, lose)
}

// resignationOf returns a context that ends when the candidate resigns.
func resignationOf(term *election.Term) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(term.Context(), func() {
		if cause := context.Cause(term.Context()); errors.Is(cause, election.ErrResigned) {
			cancel(cause)
		}
	})
	return ctx
}

// The pauses of --restart.
const (
	settled      = 10 * time.Second // a command that fails within this time failed at once
	shortestRest = time.Second      // so that other processes get the lock
	longestRest  = time.Minute
)

// setPause sets the pause after a command that ended by itself. The pause doubles each time the command
// fails at once.
func (c *electCmd) setPause(failed bool) {
	if !failed {
		c.fails, c.pause = 0, shortestRest
		return
	}
	c.pause = min(shortestRest<<min(c.fails, 10), longestRest)
	c.fails++
}

// campaigns returns a function that waits until this process leads or a signal ends the wait; each
// call is the next campaign of one candidate. Signals that arrived between two terms apply to the
// wait: TERM ends it, Ctrl-Z stops this process.
//
// The candidate releases the lock of a term when the next campaign begins, and hold has done so by
// then. Its terms are not stopped when elect ends, since that would release a lock which hold has
// kept because processes of the command still run.
func (c *electCmd) campaigns(a *App, engine driver.Engine) func(context.Context) (*fencelock.Lock, error) {
	var reached atomic.Bool // the server has answered
	var line atomic.Pointer[waitLine]
	var silence *outage
	locker := c.locker(engine, fencelock.Options{OnWait: func(info driver.WaitInfo) {
		if trouble(info) == "" {
			reached.Store(true)
		}
		line.Load().update(info)
	}})
	giveUp := func(err error) bool {
		if reached.Load() {
			silence.note(err)
		}
		return !reached.Load() // as long as it has not, the URL may be wrong
	}
	all, cancel := context.WithCancel(a.Context)
	c.health.name, c.health.candidate = c.Name, election.New(locker, c.Name, &election.Config{
		ResignPause: -1, GiveUp: giveUp, Rank: c.Rank, Settle: c.Settle,
	})
	next, _ := iter.Pull2(c.health.candidate.Terms(all))
	return func(ctx context.Context) (*fencelock.Lock, error) {
		end, stop := drainSignals(c.last)
		if end != nil {
			return nil, gaveUp(end)
		}
		defer stoppable(stop)()
		c.health.resting.Store(true)
		slept := retry.Sleep(ctx, c.pause)
		c.health.resting.Store(false)
		if !slept {
			return nil, ctx.Err()
		}
		line.Store(newWaitLine(a, c.Name, 0)) // no log lines: waiting is normal for elect
		defer line.Load().stop()
		silence = &outage{app: a, reached: &reached}
		go silence.probeEngine(ctx, locker, c.Name) // ends with the campaign
		defer context.AfterFunc(ctx, cancel)()
		term, err, _ := next()
		if err != nil {
			return nil, err
		}
		reached.Store(true)
		c.held = term
		return term.Lock(), nil
	}
}

// drainSignals stops a listener and returns what arrived too late for the command of the last term:
// a signal that asks to end, or nil, and whether the terminal wants to stop this process.
func drainSignals(signals chan os.Signal) (end os.Signal, stop bool) {
	if signals == nil {
		return nil, false
	}
	signal.Stop(signals)
	for {
		select {
		case s := <-signals:
			if slices.Contains(supervise.EndSignals, s) {
				return s, false
			}
			stop = stop || s == unix.SIGTSTP
		default:
			return nil, stop
		}
	}
}

// stoppable lets the terminal stop this process while no command runs, until the returned function
// is called. This is needed because SIGTSTP has no default effect any more after a term has
// listened to it. If now is set, the terminal has already asked for it.
func stoppable(now bool) func() {
	stops, done := make(chan os.Signal, 1), make(chan struct{})
	if now {
		stops <- unix.SIGTSTP
	}
	supervise.Notify(stops, unix.SIGTSTP)
	go func() { // ends when done is closed
		for {
			select {
			case <-stops:
				supervise.StopOwnGroup(stops)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(stops)
		close(done)
	}
}
