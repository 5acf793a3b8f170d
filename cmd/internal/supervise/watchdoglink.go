//go:build unix

package supervise

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogLink is the wrapper's view of the watchdog process, which starts the command. The watchdog
// kills the command if the wrapper was killed, or if the wrapper is frozen until the deadline.
type watchdogLink struct {
	link
	pid int
	due time.Time // the last deadline sent

	pending []order          // orders that the watchdog has not reported as carried out
	timeout <-chan time.Time // fires when it should have reported that; nil if nothing waits for it
	fires   time.Time        // when timeout fires
	limit   time.Duration    // how long timeout runs
	second  bool             // timeout has fired, and runs for a second time
}

// orderLimit is how long the watchdog may take to carry out an order on which the end of the command
// depends. A healthy one takes milliseconds, or up to killLimit.
const orderLimit = 5 * time.Second

// startWatchdog starts this program again as a watchdog. The watchdog has its own process group, so
// signals to our group do not reach it. It stays in our session, so that the command has a
// terminal. It inherits the files of lock, whose descriptors are returned. The files of standard are
// its stdin, stdout and stderr; nil means those of this process.
func startWatchdog(standard [3]*os.File, lock []*os.File) (w watchdogLink, events <-chan change, fds []int, err error) {
	self, err := OwnProgram()
	if err != nil {
		return w, nil, nil, err
	}
	ours, theirs, err := newLink()
	if err != nil {
		return w, nil, nil, err
	}
	inherited, err := inheritable(append([]*os.File{theirs}, lock...))
	theirs.Close()
	if err != nil {
		ours.Close()
		return w, nil, nil, err
	}
	defer closeAll(inherited)
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	for i, f := range standard {
		if f != nil {
			attr.Files[i] = f.Fd()
		}
	}
	for _, f := range inherited {
		fds = append(fds, int(f.Fd()))
	}
	w.pid, events, err = children.start(func() (int, error) {
		pid, _, err := syscall.StartProcess(self, []string{watchdogName, strconv.Itoa(fds[0])}, attr)
		return pid, err
	})
	if err != nil {
		ours.Close()
		return w, nil, nil, err
	}
	w.link = link{ours}
	return w, events, fds[1:], nil
}

// OwnProgram returns a path of this program. On Linux that is a link that works even after a new
// version has replaced the file. Its error is a *StartError.
func OwnProgram() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	path, err := os.Executable()
	if err != nil {
		err = failed(fmt.Errorf("the path of this program is unknown: %w\ntry: mount -t proc proc /proc", err))
	}
	return path, err
}

// until converts a deadline to the time at which a watchdog starts to kill. It reads the clock
// before the remaining time: if the process freezes in between, the result is too early, never too
// late.
func until(deadline time.Time) time.Duration {
	now := bootTime()
	return max(1, now+time.Until(deadline)-KillReserve)
}

// inform sends a changed deadline to the watchdog. Zero means none.
func (w *watchdogLink) inform(deadline time.Time) {
	if deadline.IsZero() || deadline.Sub(w.due).Abs() < time.Millisecond {
		return
	}
	w.order(order{Until: until(deadline)})
	w.due = deadline
}

// order sends an order. If the socket stays full, the watchdog is frozen. Then order kills it, and
// the wrapper takes over its work.
func (w *watchdogLink) order(o order) {
	if o.reported() {
		w.pending = append(w.pending, o)
	}
	if w.send(o) != nil {
		w.kill()
	}
}

// startTimeout makes timeout fire unless the watchdog carries out its orders within the limit. A debugger
// can stop a watchdog without notice to this process, and SIGCONT does not continue it. The limit is
// split in two: after the first half, the watchdog may have been frozen together with this process.
func (w *watchdogLink) startTimeout(limit time.Duration) {
	half := min(limit, orderLimit) / 2
	if w.timeout == nil || time.Now().Add(half).Before(w.fires) {
		w.limit = half
		w.restartTimeout()
	}
}

// restartTimeout starts timeout.
func (w *watchdogLink) restartTimeout() {
	w.timeout, w.fires = time.After(w.limit), time.Now().Add(w.limit)
}

// acknowledged notes a report of the watchdog that it has carried out an order.
func (w *watchdogLink) acknowledged() {
	switch w.pending = w.pending[1:]; {
	case len(w.pending) == 0:
		w.stopTimeout()
	case w.timeout != nil:
		w.second = false
		w.restartTimeout()
	}
}

// stopTimeout stops timeout.
func (w *watchdogLink) stopTimeout() { w.timeout, w.second = nil, false }

// timedOut is called when timeout has fired. It reports whether the limit is over.
func (w *watchdogLink) timedOut() bool {
	if w.second {
		return true
	}
	w.second = true
	w.restartTimeout()
	return false
}

// kill ends the watchdog.
func (w *watchdogLink) kill() { _ = children.signal(w.pid, unix.SIGKILL) }

// resume continues a stopped watchdog.
func (w *watchdogLink) resume() { _ = children.signal(w.pid, unix.SIGCONT) }

// inheritable duplicates files so that a child inherits them under the same descriptors. It prefers
// descriptors from 100, since the caller of fencelock may pass lower ones on to the command.
func inheritable(files []*os.File) (dups []*os.File, err error) {
	for _, f := range files {
		fd := -1
		for _, lowest := range []int{100, 10, 3} { // the limit on open files may be low
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
