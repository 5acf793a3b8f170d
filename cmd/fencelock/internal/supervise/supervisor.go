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

// watchdogName is the first argument of a watchdog, and what the process table shows: not our
// own name, or whoever kills all processes of that name would kill the watchdogs too.
const watchdogName = "lock-watchdog"

// A watchdog lives in init, before packages that it does not need are initialised: a command
// waits for it to start. Its arguments make it one, which the environment cannot.
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
	runtime.LockOSThread() // the kernel kills the command when the thread that started it ends
	nameProcess(watchdogName)
	adoptOrphans()
	handleSignals()
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true) // so that writes have deadlines
	keep(os.NewFile(uintptr(fd), "wrapper"))
	os.Exit(0)
}

// handleSignals has all signals handled and none ignored, since the command would inherit that:
// a watchdog must outlive signals that are sent by hand, by an outer fencelock to all it
// supervises, or at a shutdown. What nohup ignores stays ignored.
func handleSignals() {
	sink := make(chan os.Signal, 1)
	for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG {
			Notify(sink, sig)
		}
	}
}

// supervisor is the state of a watchdog, which is the parent of the command. It belongs to one
// goroutine.
type supervisor struct {
	start
	link
	tree

	due     time.Duration // kill then, on the clock of bootTime
	events  <-chan waited // nil once no child is left
	ended   bool          // the command itself
	killing bool
	late    bool // the killing began at the deadline
	said    int  // how many were reported as denied
}

// keep starts the command that the first order names, and returns when nothing of it is left.
func keep(conn *os.File) {
	orders := lines[order](conn, nil) // ends with the wrapper or with us
	first, ok := <-orders
	if !ok || first.Start == nil {
		return
	}
	k := &supervisor{start: *first.Start, link: link{conn}, due: math.MaxInt64}
	k.obey(first)
	if k.due <= bootTime() {
		return // the wrapper was frozen, and has lost its lock
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
		unix.Close(fd) // before the wrapper hears of the end, and gives the lock back
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

// withdraw lets go of what only the command needs: if the wrapper is killed, nobody shall wait
// for us to close a pipe, or to leave a directory.
func withdraw() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		for fd := range 3 {
			dup2(null, fd)
		}
		unix.Close(null)
	}
	_ = os.Chdir("/") // the root is always there
}

// watch obeys the wrapper until nothing of the command is left. It kills everything at the
// deadline, and when the wrapper is gone.
func (k *supervisor) watch(orders <-chan order) {
	var tell <-chan time.Time // when to speak of what the command left behind
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

// over reports whether nothing of the command is left.
func (k *supervisor) over() bool {
	return k.ended && k.IgnoreOrphans || k.events == nil && k.roots() == 0
}

// How often a watchdog looks again.
const (
	killAgain   = 10 * time.Millisecond
	deniedAgain = 200 * time.Millisecond // what belongs to another user is hopeless
	lookAgain   = time.Second            // timers stand still while the machine sleeps
	leftAgain   = 50 * time.Millisecond  // at a group that has no child of ours
	killLimit   = 500 * time.Millisecond // orders are read after so long at the latest
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

// obey does what the wrapper orders.
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

// onEvent notes what became of the command.
func (k *supervisor) onEvent(ev waited) {
	switch {
	case ev.gone():
		k.ended = true
		_ = k.send(report{Ended: &ev.status})
	case ev.status.Stopped():
		_ = k.send(report{Stopped: ev.status.StopSignal()})
	}
}

// killAll kills everything, and reports how many refuse to die.
func (k *supervisor) killAll() {
	k.kill(killLimit)
	if k.denied != k.said {
		k.said = k.denied
		_ = k.send(report{Refused: unix.SIGKILL, Denied: k.denied})
	}
}
