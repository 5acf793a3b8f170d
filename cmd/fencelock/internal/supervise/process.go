//go:build unix

// Package supervise runs a command under a lock, and sees to it that the command and
// everything it has started are gone before others can get the lock.
//
// # The chain
//
// This process, the wrapper, starts a watchdog: this very program, started again under another
// name. The watchdog starts the command. On Linux both adopt orphans, so that whatever the
// command starts stays below the watchdog: in groups and sessions of its own, after double
// forks, and after the end of the command. If the watchdog is killed, all of it is below the
// wrapper. Nobody guesses which processes are the command's.
//
// Three end a command whose lock is lost, each when the one before it could not:
//
//  1. The wrapper, when the context of the lock ends: it has the watchdog send Command.Signal to
//     everything, and SIGKILL Command.KillAfter later, before the lease is over.
//  2. The watchdog, when the wrapper is gone, or is frozen: it knows the deadline of the lock, and
//     begins to kill [KillReserve] before it.
//  3. The wrapper, when the watchdog was killed.
//
// A kill walks through the tree from the top down, and begins again until nothing is left, since
// a process may be born while its parent dies. It cannot reach processes of other users; then
// [Process.Wait] says so, and nothing gives the lock back while such a process lives.
//
// The watchdog keeps the descriptors of a lock that lives in files until nothing of the command
// is left.
//
// On other systems than Linux, what counts is the process group of the command.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is what a command runs under. A *fencelock.Lock is one.
type Lock interface {
	// Context ends when the lock is lost: Command.KillAfter and KillReserve before Deadline
	// at the latest, or there is less time to end the command than was meant.
	Context() context.Context
	// Deadline is when others may get in. Zero means that they may not while we live.
	Deadline() time.Time
	// Err is nil while the lock is held, by the clocks and not by a timer.
	Err() error
}

// Command is a command that shall run under a lock.
type Command struct {
	Path string   // the program, as Lookup found it
	Args []string // the first is what the program is called
	Env  []string

	// Output is where stdout and stderr of the command go; nil is where ours do.
	Output [2]*os.File

	// Inherit is files that the watchdog keeps open until nothing of the command is left; a
	// lock that lives in a file is held as long as anybody has it open. The command has them
	// too, unless IgnoreOrphans is set, under numbers that are free for it.
	Inherit []*os.File

	Lock      Lock
	Signals   chan os.Signal // passed on; what Forwarded returned
	Terminal  *Terminal      // lent to the command; nil is none
	Signal    unix.Signal    // asks the command to end
	KillAfter time.Duration  // how long it has to end; 0 kills at once
	Tick      time.Duration  // how often the watchdog is told the deadline

	// IgnoreLoss lets the command go on when the lock is lost, and when we die.
	IgnoreLoss bool

	// IgnoreOrphans makes the command over when it has ended itself, whatever it left behind.
	IgnoreOrphans bool

	// Hint follows what is said while the command is over but for what it left behind.
	Hint string

	// Say tells people something. It must not block.
	Say func(format string, args ...any)
}

// Process is a command that runs. It belongs to one goroutine:
// its methods are not safe for concurrent use.
type Process struct {
	Command

	watchdog watchdog
	reports  <-chan report // nil once the watchdog has spoken its last
	events   <-chan waited // nil once no child is left
	done     chan struct{} // closed by Close
	own      tree          // what falls to us if the watchdog is killed
	seen     map[int]bool  // our children at the last tick, where strangers may come

	pid    int // of the command; also its process group
	status unix.WaitStatus
	ended  bool // the command itself
	empty  bool // and all that it has started
	buried bool // the watchdog was collected

	lost   bool
	asked  bool             // a signal that ends programs was passed on
	hungUp bool             // or one that ends many
	late   bool             // the watchdog killed the command at the deadline
	broken bool             // the watchdog was killed, and so the command
	denied int              // processes of other users that were not killed
	kill   <-chan time.Time // when to kill; nil until the lock is lost
	over   bool             // the lease, after a loss
	leave  <-chan time.Time // when it will be
}

// Start starts the command. Its error is a *StartError, or that of a lock which was lost
// before. It blocks until the command has started; the loss of the lock ends that. It closes
// c.Inherit.
func Start(c Command) (*Process, error) {
	defer closeAll(c.Inherit) // the watchdog has its own by now, and ours would keep the lock after its release
	adoptOrphans()
	p := &Process{Command: c, done: make(chan struct{}), own: tree{spare: set(ownChildren())}}
	if err := c.Lock.Err(); err != nil {
		return nil, err
	}
	c.Terminal.heedStops()
	w, events, lock, err := startWatchdog(c.Output, c.Inherit)
	c.Terminal.ignoreStops()
	if err != nil {
		return nil, failed(fmt.Errorf("lock-watchdog could not be started: %w", err))
	}
	p.watchdog, p.events, p.reports = w, events, lines[report](w.conn, p.done)
	foreground := c.Terminal.wanted()
	err = p.begin(start{
		Path: c.Path, Args: words(c.Args), Env: words(c.Env), Foreground: foreground, Lock: lock,
		IgnoreLoss: c.IgnoreLoss, IgnoreOrphans: c.IgnoreOrphans,
	})
	if err == nil {
		return p, nil
	}
	if foreground { // what could not be executed has taken it already
		c.Terminal.take()
	}
	p.Close()
	return nil, err
}

// begin has the watchdog start the command, and waits for that.
func (p *Process) begin(s start) error {
	first := order{Start: &s}
	if deadline := p.Lock.Deadline(); !p.IgnoreLoss && !deadline.IsZero() {
		first.Until, p.watchdog.due = until(deadline), deadline
	}
	if !p.IgnoreLoss { // a watchdog that is frozen must not keep us
		defer context.AfterFunc(p.Lock.Context(), p.watchdog.kill)()
	}
	_ = p.watchdog.sendBy(time.Time{}, first) // if the watchdog is gone, its reports end
	for {
		select {
		case r, ok := <-p.reports:
			switch {
			case !ok:
				p.reports = nil
				p.takeOver()
				if err := p.Lock.Err(); err != nil {
					return err
				}
				return failed(errors.New("lock-watchdog was killed before it had started the command"))
			case r.Errno != 0:
				return startError(p.Args[0], r.Errno)
			case r.Failed != "":
				return failed(errors.New(r.Failed))
			}
			p.pid, p.own.group = r.Started, r.Started
			children.adopt(p.pid)
			return nil
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		}
	}
}

// set is a set of processes.
func set(pids []int) map[int]bool {
	s := make(map[int]bool, len(pids))
	for _, pid := range pids {
		s[pid] = true
	}
	return s
}
