//go:build unix

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// electCmd is the verb elect. A term is one acquisition of the lock; a process may have several,
// one after the other.
type electCmd struct {
	Restart bool // campaign again after the command has ended by itself

	command

	reached atomic.Bool    // the server has answered
	last    chan os.Signal // receives the signals of the previous term
	pause   time.Duration  // before the next campaign
	fails   int            // terms in a row whose command failed at once
}

func newElect(a *app) *cobra.Command {
	c := new(electCmd)
	cmd := &cobra.Command{
		Use: "elect [flags] NAME -- CMD [ARG]...", GroupID: useLocks, Short: "Run a command while this process is the leader.", SuggestFor: []string{"leader"},
		Long: `Of all processes that run elect with the same NAME, one is the leader and runs the command; the others wait. When the leader is stopped, the next one leads at once. When the leader vanishes, the next one leads when its TTL is over at the latest. A leader that loses the lock stops its command before another one leads, and then waits for the lock again. Each later leader has a greater FENCELOCK_TOKEN.

If the server is unreachable at the start, elect exits with 69. After that it retries during an outage of the server.

With --restart, elect campaigns again after its command has ended by itself, behind the others. If the command keeps failing at once, elect pauses before each campaign, up to a minute.`,
		Example: `fencelock elect billing -- ./billing
fencelock elect --ttl 10s --restart billing -- ./billing
fencelock status billing`,
		Annotations: map[string]string{
			argumentRows: table([]explained{nameRow, commandRow}),
			variables:    commandVariables,
			exitCodes: table([]explained{
				{"", "the exit code of the command, also after INT, TERM or HUP, which are passed to it; or one of these:"},
				{"128+n", "signal n arrived during the wait, or killed the command"},
				{"71", "fencelock could not start its watchdog or get another resource"},
			}),
		},
		ValidArgsFunction: completeCommand(a.lockNames), PreRunE: checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Restart, "restart", false, "After the command has ended by itself, campaign again, behind the others. Without it, elect ends with the command.")
	c.command.flags(cmd)
	return cmd
}

// Run campaigns and leads, term after term on one engine, until the command ends by itself or a
// signal ends it. Its error carries the exit code.
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

// term campaigns once and leads if it wins. It reports whether another term follows; if not, its
// error carries the exit code.
func (c *electCmd) term(a *app, engine driver.Engine, path string) (again bool, err error) {
	lock, signals, err := c.campaign(a, engine)
	if err != nil {
		return false, err
	}
	a.say("leading %q, token %d", c.Name, lock.Token())
	began := time.Now()
	end := a.hold(engine, lock, c.under(a, lock, path, signals), func(error) {})
	c.last = signals
	switch {
	case end.asked || end.stuck || !end.begun && !end.lost: // a command that could not be started would fail again
		return false, end.err
	case end.lost: // not the fault of the command, so there is no pause
		c.pause, c.fails = 0, 0
		if !end.begun {
			a.say("%v", end.err)
		}
		a.say("campaigning for %q again", c.Name)
		return true, nil
	case !c.Restart:
		return false, end.err
	}
	c.rest(end.err != nil && time.Since(began) < settled)
	a.say("the command exited with code %d; campaigning for %q again in %v", exitCode(end.err), c.Name, c.pause)
	return true, nil
}

// The pauses of --restart.
const (
	settled      = 10 * time.Second // a command that fails within this time failed at once
	shortestRest = time.Second      // so that other processes get the lock
	longestRest  = time.Minute
)

// rest sets the pause after a command that ended by itself. The pause doubles each time the command
// fails at once.
func (c *electCmd) rest(failed bool) {
	if !failed {
		c.fails, c.pause = 0, shortestRest
		return
	}
	c.pause = min(shortestRest<<min(c.fails, 10), longestRest)
	c.fails++
}

// campaign waits until this process leads or a signal ends the wait. Signals that arrived between
// two terms apply to the wait: TERM ends it, Ctrl-Z stops this process.
func (c *electCmd) campaign(a *app, engine driver.Engine) (*fencelock.Lock, chan os.Signal, error) {
	return a.await(func(ctx context.Context) (*fencelock.Lock, error) {
		end, stop := drainSignals(c.last)
		if end != nil {
			return nil, gaveUp(end)
		}
		defer stoppable(stop)()
		retry.Sleep(ctx, c.pause)
		line := newWaitLine(a, c.Name, 0) // no log lines: waiting is normal for elect
		defer line.stop()
		locker := c.locker(engine, fencelock.Options{OnWait: func(info driver.WaitInfo) {
			if trouble(info) == "" {
				c.reached.Store(true)
			}
			line.update(info)
		}})
		silence := &outage{app: a, reached: &c.reached}
		over, found := context.WithCancel(ctx)
		defer found()
		go silence.probeEngine(over, locker, c.Name) // ends with the campaign
		lock, err := c.insist(ctx, locker, silence)
		if err == nil {
			c.reached.Store(true)
		}
		return lock, err
	})
}

// The pauses between attempts after a failure.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second // after an outage a new leader starts within this time
)

// insist acquires the lock. It retries after errors that may be temporary, but only if the server
// has answered before, since until then the URL may be wrong.
func (c *electCmd) insist(ctx context.Context, locker *fencelock.Locker, silence *outage) (*fencelock.Lock, error) {
	for pause := retry.NewBackoff(firstRetry, lastRetry); ; pause.Wait(ctx) {
		lock, err := locker.Acquire(ctx, c.Name)
		if err == nil || ctx.Err() != nil || !c.reached.Load() || !passes(err) {
			return lock, err
		}
		silence.note(err)
	}
}

// passes reports whether err may be temporary, so that a retry may succeed. Other errors need a
// change by a person. They end elect, so that a service manager reports them.
func passes(err error) bool {
	return !errors.Is(err, driver.ErrInvalid) && !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrConfig)
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

// stoppable makes SIGTSTP stop this process until the returned function is called. elect needs it
// while no command runs, since SIGTSTP has lost its default effect once a term has listened to it.
// If now is set, SIGTSTP has already arrived and stops this process at once.
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
