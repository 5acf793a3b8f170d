//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is what a command runs under. A *fencelock.Lock is one.
type Lock interface {
	// Context ends when the lock is lost. It must end at least Command.KillAfter plus KillReserve
	// before Deadline, or the command has less than KillAfter to end.
	Context() context.Context
	// Deadline is when another process may get the lock. Zero means not before this process ends.
	Deadline() time.Time
	// Err is nil while the lock is held. It reads the clock and needs no timer.
	Err() error
}

// Command is a command to run under a lock.
type Command struct {
	Path string   // the program, as Lookup found it
	Args []string // the first is the name of the program
	Env  []string

	Input *os.File // stdin of the command; nil means that of this process

	// Output receives stdout and stderr of the command; nil means those of this process.
	Output [2]*os.File

	// Inherit are files that this process and the watchdog keep open until no process of the command
	// is left. Files that are locked belong here: the kernel holds such a lock as long as a process
	// has the file open. The command inherits the files too, unless IgnoreOrphans is set.
	Inherit []*os.File

	Lock      Lock
	Signals   chan os.Signal // passed on to the command; see Forwarded
	Terminal  *Terminal      // lent to the command; nil means none
	Signal    unix.Signal    // sent first to end the command
	KillAfter time.Duration  // time from Signal to SIGKILL; 0 kills at once
	Tick      time.Duration  // how often the watchdog gets the deadline
	MaxRun    time.Duration  // how long the command may run, before it is ended as after a loss; 0 means no maximum

	// Cancel ends the command when it ends, as MaxRun does. Its cause tells the user why. nil means
	// never.
	Cancel context.Context

	// IgnoreLoss means that the command continues when the lock is lost or this process dies.
	IgnoreLoss bool

	// IgnoreOrphans means to wait only for the command itself, not for processes that it leaves
	// behind.
	IgnoreOrphans bool

	// Hint is appended to the message that the command has left processes behind.
	Hint string

	// Say prints a message for the user. It must not block.
	Say func(format string, args ...any)
}

// Process is a running command. It belongs to one goroutine: its methods are not safe for
// concurrent use.
type Process struct {
	Command

	watchdog watchdogLink
	reports  <-chan report // nil after the last report
	events   <-chan change // nil once no child is left
	done     chan struct{} // closed by Close
	own      tree          // used to kill the command if the watchdog is killed
	seen     map[int]bool  // our children at the last tick; see onTick

	pid    int  // of the command; also its process group
	ended  bool // the command itself has ended
	empty  bool // all processes of the command have ended
	reaped bool // the watchdog has ended and been reaped

	end     End              // what is known so far
	asked   bool             // a signal that ends programs was passed on
	hungUp  bool             // SIGHUP was passed on
	typed   unix.Signal      // the latest signal that the terminal sent to the command alone, or 0
	listens bool             // the watchdog reports such signals
	left    int              // processes that run although the command has ended; 0 until that is reported
	denied  int              // processes of other users that were not killed
	maxOver <-chan time.Time // fires when MaxRun is over
	kill    <-chan time.Time // when to kill; nil until the lock is lost
	killed  bool             // the watchdog got the order to kill
	last    <-chan time.Time // when to take over if the command has not ended; nil until a lease is lost
	gone    time.Time        // since when the watchdog has ended and was not reaped; zero means it was or has not
	over    bool             // the lease has expired after a loss
	leave   <-chan time.Time // fires when over becomes true

	cancelled <-chan struct{} // closed when Cancel ends; nil after that
}

// Start starts the command. It blocks until the command has started or the lock is lost. Its error
// is a *StartError, or that of the lost lock. It closes c.Inherit if it fails; otherwise
// [Process.Wait] does.
//
// A signal to all processes of a group or service, as from timeout(1), ends a watchdog that has only
// begun to start. Start then starts another one.
func Start(c Command) (p *Process, err error) {
	adoptOrphans()
	for range startTries {
		if p, err = startOnce(c); !errors.Is(err, errNotReady) {
			break
		}
	}
	if err != nil {
		closeAll(c.Inherit)
	}
	return p, err
}

// startTries is how many watchdogs Start starts at most.
const startTries = 10

// errNotReady is the error for a watchdog that was killed before it handled signals. It has not
// started the command.
var errNotReady = errors.New("lock-watchdog was killed before it had started the command")

// startOnce does the work of Start with one watchdog.
func startOnce(c Command) (*Process, error) {
	p := &Process{Command: c, done: make(chan struct{}), own: tree{foreign: set(ownChildren())}}
	if err := c.Lock.Err(); err != nil {
		return nil, err
	}
	c.Terminal.heedStops()
	w, events, lock, err := startWatchdog([3]*os.File{c.Input, c.Output[0], c.Output[1]}, c.Inherit)
	c.Terminal.ignoreStops()
	if err != nil {
		return nil, failed(fmt.Errorf("lock-watchdog could not be started: %w", err))
	}
	p.watchdog, p.events, p.reports = w, events, lines[report](w.conn, p.done)
	foreground := c.Terminal.wanted()
	own, env := forCommand(c.Env)
	err = p.begin(start{
		Path: []byte(c.Path), Args: joined(c.Args), Env: joined(env), Own: own, Foreground: foreground, Lock: lock,
		IgnoreLoss: c.IgnoreLoss, IgnoreOrphans: c.IgnoreOrphans,
	})
	if err == nil {
		return p, nil
	}
	if foreground { // the terminal belongs to the failed child's group by now
		c.Terminal.take()
	}
	p.Close()
	return nil, err
}

// begin orders the watchdog to start the command, and waits for its report.
func (p *Process) begin(s start) error {
	first := order{Start: &s}
	if deadline := p.Lock.Deadline(); !p.IgnoreLoss && !deadline.IsZero() {
		first.Until, p.watchdog.due = until(deadline), deadline
	}
	if !p.IgnoreLoss { // a frozen watchdog must not block this process
		defer context.AfterFunc(p.Lock.Context(), p.watchdog.kill)()
	}
	go p.watchdog.sendBy(time.Time{}, first) //nolint:errcheck // ends when the watchdog has read it or has ended; then reports is closed
	defer p.watchdog.stopTimeout()
	var early []os.Signal
	defer func() { p.putBack(early) }() // the command gets them when it has started
	ready := false
	for {
		select {
		case r, ok := <-p.reports:
			switch {
			case !ok:
				p.takeOver("lock-watchdog was killed")
				if err := p.Lock.Err(); err != nil {
					return err
				}
				if !ready {
					return failed(errNotReady)
				}
				return failed(errors.New("lock-watchdog was killed while it started the command"))
			case r.Ready:
				ready = true
				continue
			case r.Errno != 0:
				return startError(p.Args[0], r.Errno)
			case r.Failed != "":
				return failed(errors.New(r.Failed))
			}
			p.pid, p.own.group, p.listens = r.Started, r.Started, r.Listens
			children.adopt(p.pid)
			return nil
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case sig := <-p.Signals:
			if early = append(early, sig); slices.Contains(EndSignals, sig) {
				p.watchdog.startTimeout(orderLimit) // a frozen watchdog must not block a signal that asks to end
			}
		case <-p.watchdog.timeout:
			if p.watchdog.timedOut() {
				p.watchdog.kill()
			}
		}
	}
}

// putBack returns signals to the channel from which they came.
func (p *Process) putBack(signals []os.Signal) {
	for _, sig := range signals {
		select {
		case p.Signals <- sig:
		default: // so many signals have come since
		}
	}
}

// set returns a set of processes.
func set(pids []int) map[int]bool {
	s := make(map[int]bool, len(pids))
	for _, pid := range pids {
		s[pid] = true
	}
	return s
}
