//go:build unix

// Package supervise runs a command under a lock, and sees to it that the command and
// all it has started are gone before others can get the lock.
//
// Three end a command whose lock is lost, each when the one before it could not:
//
//  1. [Process.Wait], when the context of the lock ends: it asks the command to end by
//     Command.Signal, and kills it Command.KillAfter later, before the lease is over.
//  2. The watchdog, a small process of its own, when this one has died or is frozen. It is
//     this very program, started again with a variable in its environment, so main must
//     call [WatchdogMain] first of all. It is told each new deadline on a pipe, and kills
//     the command's process group when the pipe is closed without a goodbye, or the deadline is
//     [KillReserve] away.
//  3. The kernel, on Linux, when this process dies before the watchdog knows the command.
//
// What counts as the command's is its process group, and on Linux whoever descends from
// it and has left the group: orphans become our children. On other systems a
// descendant that leaves the group is not seen.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
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

	// Mark is an entry of Env that no other program has, such as the owner of the lock:
	// a process that has it is the command's.
	Mark string

	// Inherit is files that the command keeps open, under numbers that are free for it; a
	// lock that lives in a file is held as long as anybody has it open.
	Inherit []*os.File

	Lock      Lock
	Signals   chan os.Signal // passed on; what Forwarded returned
	Terminal  *Terminal      // lent to the command; nil is none
	Signal    unix.Signal    // asks the command to end
	KillAfter time.Duration  // how long it has to end
	Tick      time.Duration  // how often the watchdog hears of the deadline

	// IgnoreLoss lets the command go on when the lock is lost, and when we die: there is no
	// watchdog.
	IgnoreLoss bool

	// IgnoreOrphans makes the command over when it has ended itself, whatever it left behind.
	IgnoreOrphans bool

	// Hint follows what is said while the command is over but for what it left behind.
	Hint string

	// Say tells people something. It must not block.
	Say func(format string, args ...any)
}

// Process is a command that runs. It belongs to one goroutine, the one that started it:
// its methods are not safe for concurrent use.
type Process struct {
	Command

	pid      int // also the process group
	family   *family
	watchdog *watchdog
	events   <-chan waited
	status   unix.WaitStatus
	tell     <-chan time.Time // when to speak of what it left behind

	lost   bool
	asked  bool // a signal that ends programs was passed on
	hungUp bool // or one that ends many
	killed bool
	late   bool             // the watchdog killed the command
	kill   <-chan time.Time // when to kill; nil until the lock is lost
}

// Start starts the command. Its error is a *StartError, or that of a lock which was lost
// before. It ties its goroutine to its thread, for good: the kernel kills the command when the
// thread that started it ends.
func Start(c Command) (*Process, error) {
	runtime.LockOSThread()
	adoptOrphans()
	children.forget()
	p := &Process{Command: c, family: newFamily(c.Mark)}
	if err := p.startWatchdog(); err != nil {
		return nil, failed(fmt.Errorf("the watchdog of the command does not start: %w", err))
	}
	inherited, err := inheritable(c.Inherit) // after the watchdog, which must not have them
	if err != nil {
		p.watchdog.dismiss()
		return nil, failed(fmt.Errorf("the command cannot inherit the lock: %w", err))
	}
	defer closeAll(inherited)
	p.tellWatchdog() // we may freeze before the next time
	if err := c.Lock.Err(); err != nil {
		p.abandonWatchdog()
		return nil, err
	}
	pid, err := c.Terminal.start(c.Path, c.Args, c.attributes())
	if err != nil {
		p.watchdog.dismiss()
		return nil, startError(c.Args[0], err)
	}
	p.pid, p.family.command, p.events = pid, pid, children.listen()
	p.tellWatchdog()
	return p, nil
}

// attributes are those of the process: our three standard files, a group of its own, and
// an end with us, unless it may outlive its lock.
func (c *Command) attributes() *syscall.ProcAttr {
	attr := &syscall.ProcAttr{
		Env: withoutWatchdog(c.Env), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	for i, f := range c.Output {
		if f != nil {
			attr.Files[1+i] = f.Fd()
		}
	}
	if !c.IgnoreLoss {
		dieWithParent(attr.Sys)
	}
	return attr
}

// startWatchdog starts a watchdog, unless the command may outlive its lock.
func (p *Process) startWatchdog() error {
	if p.IgnoreLoss {
		return nil
	}
	w, err := startWatchdog()
	if err == nil {
		p.watchdog = w
		p.family.watchdogs[w.pid] = true
	}
	return err
}

// tellWatchdog passes the group, once there is one, and the deadline on, and replaces
// a watchdog that died.
func (p *Process) tellWatchdog() {
	if p.IgnoreLoss {
		return
	}
	if p.watchdog == nil && p.startWatchdog() != nil {
		return // the next tick tries again
	}
	deadline := p.Lock.Deadline()
	if p.lost { // the kill is under way, and the last deadline stays the last
		deadline = time.Time{}
	}
	p.watchdog.inform(p.pid, deadline)
}

// abandonWatchdog ends the watchdog of a command that was not started, and waits for that: to the
// next command it would be a stranger.
func (p *Process) abandonWatchdog() {
	if p.watchdog == nil {
		return
	}
	p.watchdog.dismiss()
	p.watchdog.kill()
	for { // somebody else may collect it
		if _, err := unix.Wait4(p.watchdog.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// send sends a signal to the command: to its group, and to those who left the group
// if it kills or if the command itself has ended.
func (p *Process) send(sig unix.Signal) {
	p.family.send(sig, p.family.ended || sig == unix.SIGKILL)
}

// inheritable returns descriptors of the same open files that a command will get
// under the same numbers: from 100 up, since lower ones may be its caller's own.
func inheritable(files []*os.File) (dups []*os.File, err error) {
	for _, f := range files {
		fd := -1
		for _, lowest := range []int{100, 10, 3} { // a tight limit may allow no more
			if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, lowest); err == nil {
				break
			}
		}
		if err != nil {
			closeAll(dups)
			return nil, err
		}
		dups = append(dups, os.NewFile(uintptr(fd), f.Name()))
	}
	return dups, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// waited is what the kernel told about one of our processes.
type waited struct {
	pid    int
	status unix.WaitStatus
}

// gone reports whether the process has ended, and was not only stopped.
func (ev waited) gone() bool { return ev.status.Exited() || ev.status.Signaled() }

// children collects every process that is ours: the command, its watchdog, and the orphans
// we adopt. There is one for all Processes, one after the other. Beside strangers it goes on when a
// command has ended, and a second one could take the end of the next command from it.
var children reaper

type reaper struct {
	mu     sync.Mutex  // guards events; held while a process is collected or the children are listed: the list would lack another one
	events chan waited // nil while nobody collects
}

// listen returns what becomes of our children, a channel that is closed when none is left.
func (r *reaper) listen() <-chan waited {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		r.events = make(chan waited, 16)
		go r.run(r.events) // ends when no child is left
	}
	return r.events
}

// forget drops what has come since the last command, for the next one.
func (r *reaper) forget() {
	r.mu.Lock()
	events := r.events
	r.mu.Unlock()
	for {
		select {
		case _, ok := <-events:
			if ok {
				continue
			}
		default:
		}
		return
	}
}

// run collects until no child is left.
func (r *reaper) run(events chan<- waited) {
	defer close(events)
	for {
		var status unix.WaitStatus
		pid, err := wait4(&r.mu, &status)
		if err != nil && !errors.Is(err, unix.EINTR) {
			pid, err = r.last(&status)
		}
		switch {
		case err == nil && pid > 0:
			events <- waited{pid, status}
		case err != nil && !errors.Is(err, unix.EINTR):
			return
		}
	}
}

// last looks again whether a child is left, since one may have been started meanwhile.
// Whoever listens from an error on makes another reaper run.
func (r *reaper) last(status *unix.WaitStatus) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED|unix.WNOHANG, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		r.events = nil
	}
	return pid, err
}
