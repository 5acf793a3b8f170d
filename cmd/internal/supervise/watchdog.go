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

// The watchdog runs in init, so that it starts faster: packages that it does not need are not
// initialised. Only its arguments identify it, so no environment variable can turn fencelock into a
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
	runWatchdog(os.NewFile(uintptr(fd), "wrapper"))
	os.Exit(0)
}

// handleSignals makes the watchdog survive signals from a user, from an outer fencelock, or at a
// shutdown. It handles the signals and does not ignore them, since the command would inherit an
// ignored signal. Signals that were ignored at the start, as under nohup, stay ignored.
func handleSignals() {
	sink := make(chan os.Signal, 1)
	for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG {
			Notify(sink, sig)
		}
	}
}

// watchdog is the state of the watchdog process, the parent of the command. It belongs to one goroutine.
type watchdog struct {
	start
	link
	tree

	due     time.Duration // when to kill, by bootTime
	events  <-chan change // nil after the last child has ended
	ended   bool          // the command itself has ended
	killing bool
	late    bool // the kill started at the deadline
	denials int  // the last reported number of processes that cannot be killed

	keepers int           // how many keepers were left at the last look
	asked   time.Duration // when they were first asked to end, by bootTime; 0 before

	listener int                // process of the listener
	listens  bool               // it is in the group of the command
	typed    <-chan unix.Signal // signals of the terminal that it reports; nil before its start and after its end
}

// runWatchdog starts the command of the first order, and returns when no process of the command is
// left. It returns earlier if the command cannot be started or the deadline has passed.
func runWatchdog(conn *os.File) {
	_ = link{conn}.send(report{Ready: true})
	orders := lines[order](conn, nil) // ends with the wrapper or this process
	first, ok := <-orders
	if !ok || first.Start == nil {
		return
	}
	s := &watchdog{start: *first.Start, link: link{conn}, tree: tree{sparesKeepers: true}, due: math.MaxInt64}
	s.execute(first)
	if s.due <= bootTime() {
		return // the wrapper was frozen and has lost its lock
	}
	if err := s.begin(); err != nil {
		r := report{Failed: err.Error()}
		errors.As(err, &r.Errno)
		_ = s.send(r)
		return
	}
	_ = s.send(report{Started: s.group, Listens: s.listens})
	Detach()
	s.watch(orders)
	for _, fd := range s.Lock {
		unix.Close(fd) // before the wrapper gets the last report and releases the lock
	}
	_ = s.send(report{Empty: true, Late: s.late})
}

// begin starts the command.
func (s *watchdog) begin() (err error) {
	attr := &syscall.ProcAttr{Env: split(s.Env), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if s.Foreground {
		tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			attr.Sys.Foreground, attr.Sys.Ctty = true, tty
			defer unix.Close(tty)
			s.prepare()
		}
	}
	if !s.IgnoreLoss {
		dieWithParent(attr.Sys)
	}
	if s.IgnoreOrphans {
		for _, fd := range s.Lock {
			unix.CloseOnExec(fd)
		}
	}
	path, args, err := s.program()
	if err != nil {
		return err
	}
	s.group, s.events, err = children.start(func() (int, error) {
		pid, _, err := syscall.StartProcess(path, args, attr)
		if isScript(string(s.Path), err) {
			pid, _, err = syscall.StartProcess(shell, byShell(string(s.Path), split(s.Args)), attr)
		}
		return pid, err
	})
	if err == nil {
		s.join()
	}
	return err
}

// Detach closes stdin, stdout and stderr of a process in the background, and leaves the working
// directory. Otherwise a reader of a pipe, or an unmount, would wait for it. In the watchdog only
// the command needs them.
func Detach() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		for fd := range 3 {
			dup2(null, fd)
		}
		unix.Close(null)
	}
	_ = os.Chdir("/") // the root directory always exists
}

// watch carries out the orders of the wrapper until no process of the command is left. It kills all
// processes at the deadline, or when the wrapper has ended.
func (s *watchdog) watch(orders <-chan order) {
	var reportLeft <-chan time.Time // when to report processes that the command left behind
	for !s.over() {
		select {
		case o, ok := <-orders:
			if !ok {
				if s.IgnoreLoss {
					os.Exit(0)
				}
				orders, s.killing = nil, true
			}
			s.execute(o)
		case ev, ok := <-s.events:
			if !ok {
				s.events = nil
				continue
			}
			if s.onEvent(ev); s.ended {
				reportLeft = time.After(patience)
			}
		case sig, ok := <-s.typed:
			s.onTyped(sig, ok)
		case <-reportLeft:
			if n := s.roots(); n > 0 {
				_ = s.send(report{Left: n})
			}
		case <-s.wake():
		}
		if s.due <= bootTime() && !s.killing {
			s.killing, s.late = true, true
		}
		if s.killing && !s.over() {
			s.killAll()
		}
		if s.ended && !s.over() {
			s.endKeepers()
		}
	}
}

// endKeepers ends the keepers once the command and all its other processes have ended. Keepers that
// do not end in time, or not before the deadline, are killed.
func (s *watchdog) endKeepers() {
	var asked bool
	if s.keepers, asked = s.tree.endKeepers(); asked && s.asked == 0 {
		s.asked = bootTime()
	}
	if s.due <= bootTime() || s.asked != 0 && bootTime()-s.asked > keeperLimit {
		s.sparesKeepers, s.killing = false, true
	}
}

// over reports whether no process of the command is left.
func (s *watchdog) over() bool {
	return s.ended && s.IgnoreOrphans || s.events == nil && s.roots() == 0
}

// Intervals of the watchdog.
const (
	killAgain   = 10 * time.Millisecond
	deniedAgain = 200 * time.Millisecond // processes of another user rarely become killable
	lookAgain   = time.Second            // timers stop while the machine sleeps, so the deadline is checked this often
	leftAgain   = 50 * time.Millisecond  // for processes of the group that are not our children
	killLimit   = 500 * time.Millisecond // limit of one call of kill, so that orders are read
	keeperLimit = 12 * time.Second       // how long keepers may take to end: for a signal, and for a release
)

// wake returns a channel that fires when watch must check again without an order or an event.
func (s *watchdog) wake() <-chan time.Time {
	switch {
	case s.killing && s.denied > 0:
		return time.After(deniedAgain)
	case s.ended && s.keepers > 0 && s.sparesKeepers:
		return time.After(min(max(s.due-bootTime(), 0), leftAgain))
	case s.killing:
		return time.After(killAgain)
	case s.events == nil:
		return time.After(leftAgain)
	case s.due != math.MaxInt64:
		return time.After(min(max(s.due-bootTime(), 0), lookAgain))
	case s.ended: // keepers may be left alone; nothing reports that
		return time.After(lookAgain)
	}
	return nil
}

// execute carries out one order.
func (s *watchdog) execute(o order) {
	if o.Until != 0 {
		s.due = o.Until
	}
	if o.Kill {
		s.killing = true
		s.killAll()
	}
	if o.Listen {
		s.prepare()
		s.join()
		_ = s.send(report{Listens: s.listens})
	}
	if o.Signal != 0 {
		if s.signal(o.Signal, o.All); s.denied > 0 {
			_ = s.send(report{Refused: o.Signal, Denied: s.denied})
		}
	}
	if o.reported() {
		_ = s.send(report{Done: true})
	}
}

// onEvent handles a change of the command.
func (s *watchdog) onEvent(ev change) {
	switch {
	case ev.pid != s.group:
	case ev.gone():
		s.ended = true
		s.endListener()
		_ = s.send(report{Ended: &ev.status})
	case ev.status.Stopped():
		_ = s.send(report{Stopped: ev.status.StopSignal()})
	}
}

// killAll kills all processes, and reports how many could not be killed.
func (s *watchdog) killAll() {
	s.kill(killLimit)
	if s.denied != s.denials {
		s.denials = s.denied
		_ = s.send(report{Refused: unix.SIGKILL, Denied: s.denied})
	}
}
