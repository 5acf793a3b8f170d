//go:build unix

package supervise

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdog is our end of the small process that starts the command, and kills it when we
// cannot: after a kill -9 of ours, or frozen past the deadline.
type watchdog struct {
	link
	pid int
	due time.Time // the last deadline that it was told
}

// startWatchdog starts ourselves again, in a process group of its own, where no signal to our
// group reaches it, but in the same session: in another one the command would have no terminal.
// It gets the descriptors of lock, whose numbers are returned.
func startWatchdog(output [2]*os.File, lock []*os.File) (w watchdog, events <-chan waited, fds []int, err error) {
	self, err := ownProgram()
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
	for i, f := range output {
		if f != nil {
			attr.Files[1+i] = f.Fd()
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

// Ready finds out whether a watchdog can be started at all, before a wait that would be
// in vain. Its error is a *StartError.
func Ready() error {
	if _, err := ownProgram(); err != nil {
		return failed(err)
	}
	return nil
}

// ownProgram returns a path to our own program. The kernel's link leads there even
// after a new version was put in its place.
func ownProgram() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// until is a deadline as a watchdog is told it: when to begin to kill. The clock is read before
// the time that is left: a process that freezes in between makes it earlier, never later.
func until(deadline time.Time) time.Duration {
	now := bootTime()
	return max(1, now+time.Until(deadline)-KillReserve)
}

// inform tells the watchdog of a deadline that has changed. Zero is none.
func (w *watchdog) inform(deadline time.Time) {
	if deadline.IsZero() || deadline.Sub(w.due).Abs() < time.Millisecond {
		return
	}
	w.order(order{Until: until(deadline)})
	w.due = deadline
}

// order gives an order. A watchdog that has not read so many that the socket is full does not
// work, and is killed: then we do its work.
func (w *watchdog) order(o order) {
	if w.send(o) != nil {
		w.kill()
	}
}

// kill ends a watchdog that does not work.
func (w *watchdog) kill() { _ = children.signal(w.pid, unix.SIGKILL) }

// goOn wakes a watchdog that somebody has stopped.
func (w *watchdog) goOn() { _ = children.signal(w.pid, unix.SIGCONT) }

// inheritable returns descriptors of the same open files that a child will get
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
