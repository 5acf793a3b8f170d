//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A watchdog stays on the main thread, whose name is the name of the process. In other
// processes a goroutine that is tied to a thread costs each switch a wake-up of it.
func init() {
	if os.Getenv(watchdogVariable) != "" {
		runtime.LockOSThread()
	}
}

// WatchdogMain is the whole life of a watchdog, and does nothing in any other process. It
// is the first call of main.
func WatchdogMain() {
	if os.Getenv(watchdogVariable) == "" {
		return
	}
	nameProcess(watchdogName)
	// No terminal reaches its session. Signals that are sent by hand, or to all processes at
	// a shutdown, would end it before the command has ended.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	w := patrol{wrapper: os.Getppid(), due: math.MaxInt64}
	if w.watch(orders(os.Stdin)) {
		w.kill()
		os.Exit(hasKilled) // the wrapper may not have noticed yet
	}
	os.Exit(0)
}

// orders sends the lines of r. Its goroutine ends at the end of r.
func orders(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// patrol is what a watchdog knows. It belongs to one goroutine.
type patrol struct {
	wrapper int           // whose child we are
	group   int           // 0: no command that we were told of
	due     time.Duration // on the clock of bootTime
}

// unread is how long the number of the command may take from the pipe to us.
const unread = KillReserve / 2

// watch obeys the wrapper. It returns true when the command must be killed: the
// wrapper is gone without a goodbye, or the deadline has come.
func (w *patrol) watch(lines <-chan string) bool {
	for {
		left := w.due - bootTime()
		if left <= 0 && w.group > 0 {
			return true
		}
		// Timers stand still while the machine sleeps, so look once a second. If the deadline
		// has come and we know no command, its number may still lie in the pipe: we may have
		// been frozen, too, or hardly have started.
		wait := min(left, time.Second)
		if left <= 0 {
			wait = unread
		}
		line, ok, heard := w.hear(lines, wait)
		switch {
		case heard && !ok || !heard && left <= 0:
			return true
		case line == "goodbye":
			return false
		case heard:
			fmt.Sscanf(line, "group %d", &w.group)
			fmt.Sscanf(line, "until %d", &w.due)
		}
	}
}

// hear waits for a line, for so long at most if there is a deadline. What is there already
// is heard, however late we are.
func (w *patrol) hear(lines <-chan string, wait time.Duration) (line string, ok, heard bool) {
	var wake <-chan time.Time
	if w.due != math.MaxInt64 {
		wake = time.After(wait)
	}
	select {
	case line, ok = <-lines:
		return line, ok, true
	case <-wake:
	}
	select {
	case line, ok = <-lines:
		return line, ok, true
	default:
		return "", false, false
	}
}

// kill kills the group, and only the group: who else descends from a wrapper that
// is gone cannot be known, and a guess could hit a stranger. It looks again until
// nobody is left or a second is over, since a process may be born while its
// parent dies. A wrapper that froze before it could tell the group is killed itself,
// and the kernel kills its command with it, where it can.
func (w *patrol) kill() {
	if w.group <= 1 { // 0 and 1 would mean others
		if os.Getppid() == w.wrapper && w.wrapper > 1 {
			unix.Kill(w.wrapper, unix.SIGKILL)
		}
		return
	}
	for end := bootTime() + time.Second; bootTime() < end; time.Sleep(10 * time.Millisecond) {
		if unix.Kill(-w.group, unix.SIGKILL) != nil {
			return
		}
	}
}
