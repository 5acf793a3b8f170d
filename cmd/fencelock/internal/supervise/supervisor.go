//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogName is the first argument of a watchdog and its name in the process table. It differs
// from fencelock so that killall fencelock does not kill the watchdogs.
const watchdogName = "lock-watchdog"

// The watchdog runs in init, before packages that it does not need are initialised, since the
// command waits for it. Its arguments identify it; the environment cannot turn a fencelock into a
// watchdog.
func init() {
	if len(os.Args) != 2 || os.Args[0] != watchdogName {
		return
	}
	fd, err := strconv.Atoi(os.Args[1])
	if err == nil {
		_, err = unix.Getpeername(fd)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencelock: lock-watchdog is started by fencelock only")
		os.Exit(1)
	}
	runtime.LockOSThread() // the kernel kills the command when the thread that started it ends (Pdeathsig)
	nameProcess(watchdogName)
	adoptOrphans()
	handleSignals()
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true) // so that writes have deadlines
	keep(os.NewFile(uintptr(fd), "wrapper"))
	os.Exit(0)
}

// handleSignals handles all signals and ignores none, since the command would inherit ignored ones.
// A watchdog must survive signals that are sent by hand, by an outer fencelock, or at a shutdown.
// What nohup ignores stays ignored.
func handleSignals() {
	sink := make(chan os.Signal, 1)
	for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG {
			Notify(sink, sig)
		}
	}
}

// supervisor is the state of a watchdog, the parent of the command. It belongs to one goroutine.
type supervisor struct {
	start
	link
	tree

	due     time.Duration // when to kill, by bootTime
	events  <-chan waited // nil after the last child has ended
	ended   bool          // the command itself has ended
	killing bool
	late    bool // the kill started at the deadline
	said    int  // the last reported number of processes that cannot be killed
}

// keep starts the command of the first order, and returns when no process of it is left.
func keep(conn *os.File) {
	orders := lines[order](conn, nil) // ends with the wrapper or this process
	first, ok := <-orders
	if !ok || first.Start == nil {
		return
	}
	k := &supervisor{start: *first.Start, link: link{conn}, due: math.MaxInt64}
	k.obey(first)
	if k.due <= bootTime() {
		return // the wrapper was frozen and has lost its lock
	}
	if err := k.begin(); err != nil {
		r := report{Failed: err.Error()}
		errors.As(err, &r.Errno)
		_ = k.send(r)
		return
	}
	_ = k.send(report{Started: k.group})
	withdraw()
	k.watch(orders)
	for _, fd := range k.Lock {
		unix.Close(fd) // before the wrapper gets the last report and releases the lock
	}
	_ = k.send(report{Empty: true, Late: k.late})
}

// begin starts the command.
func (k *supervisor) begin() (err error) {
	attr := &syscall.ProcAttr{Env: strung(k.Env), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if k.Foreground {
		tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			attr.Sys.Foreground, attr.Sys.Ctty = true, tty
			defer unix.Close(tty)
		}
	}
	if !k.IgnoreLoss {
		dieWithParent(attr.Sys)
	}
	if k.IgnoreOrphans {
		for _, fd := range k.Lock {
			unix.CloseOnExec(fd)
		}
	}
	k.group, k.events, err = children.start(func() (int, error) {
		pid, _, err := syscall.StartProcess(k.Path, strung(k.Args), attr)
		return pid, err
	})
	return err
}

// withdraw releases what only the command needs: if the wrapper is killed, nobody must wait until
// the watchdog closes a pipe or leaves a directory.
func withdraw() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		for fd := range 3 {
			dup2(null, fd)
		}
		unix.Close(null)
	}
	_ = os.Chdir("/") // the root directory always exists
}

// watch follows the orders of the wrapper until no process of the command is left. It kills all
// processes at the deadline, and when the wrapper is gone.
func (k *supervisor) watch(orders <-chan order) {
	var tell <-chan time.Time // when to report processes that the command left behind
	for !k.over() {
		select {
		case o, ok := <-orders:
			if !ok {
				if k.IgnoreLoss {
					os.Exit(0)
				}
				orders, k.killing = nil, true
			}
			k.obey(o)
		case ev, ok := <-k.events:
			if !ok {
				k.events = nil
				continue
			}
			if k.onEvent(ev); k.ended {
				tell = time.After(patience)
			}
		case <-tell:
			if n := k.roots(); n > 0 {
				_ = k.send(report{Left: n})
			}
		case <-k.wake():
		}
		if k.due <= bootTime() && !k.killing {
			k.killing, k.late = true, true
		}
		if k.killing && !k.over() {
			k.killAll()
		}
	}
}

// over reports whether no process of the command is left.
func (k *supervisor) over() bool {
	return k.ended && k.IgnoreOrphans || k.events == nil && k.roots() == 0
}

// Intervals of the watchdog.
const (
	killAgain   = 10 * time.Millisecond
	deniedAgain = 200 * time.Millisecond // processes of another user rarely become killable
	lookAgain   = time.Second            // timers stop while the machine sleeps
	leftAgain   = 50 * time.Millisecond  // at a group without a child of ours
	killLimit   = 500 * time.Millisecond // limit of one kill, so that orders are read
)

// wake returns when to look again without an order or an event.
func (k *supervisor) wake() <-chan time.Time {
	switch {
	case k.killing && k.denied > 0:
		return time.After(deniedAgain)
	case k.killing:
		return time.After(killAgain)
	case k.events == nil:
		return time.After(leftAgain)
	case k.due != math.MaxInt64:
		return time.After(min(max(k.due-bootTime(), 0), lookAgain))
	}
	return nil
}

// obey carries out an order.
func (k *supervisor) obey(o order) {
	if o.Until != 0 {
		k.due = o.Until
	}
	k.killing = k.killing || o.Kill
	if o.Signal != 0 {
		if k.signal(o.Signal, o.All); k.denied > 0 {
			_ = k.send(report{Refused: o.Signal, Denied: k.denied})
		}
	}
}

// onEvent handles a change of the command.
func (k *supervisor) onEvent(ev waited) {
	switch {
	case ev.gone():
		k.ended = true
		_ = k.send(report{Ended: &ev.status})
	case ev.status.Stopped():
		_ = k.send(report{Stopped: ev.status.StopSignal()})
	}
}

// killAll kills all processes, and reports how many could not be killed.
func (k *supervisor) killAll() {
	k.kill(killLimit)
	if k.denied != k.said {
		k.said = k.denied
		_ = k.send(report{Refused: unix.SIGKILL, Denied: k.denied})
	}
}
