//go:build unix

// Package early checks the limits on resources, and handles signals that arrive while the command
// starts. The program imports it for its effect. It is a package of its own because its init function
// then runs before those of most packages, which take most of the start.
package early

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

func init() {
	checkLimits()
	supervise.ExitOnSignals()
}

// What the start of the command and of its watchdog needs. If the Go runtime does not get it, it prints
// all goroutines.
const (
	needFiles = 16
	needTasks = 32 // processes and threads
)

// checkLimits ends this process with a message if a limit on its resources is too low for it.
func checkLimits() {
	if n := freeFiles(needFiles); n < needFiles {
		refuse("files", n, needFiles, "-n")
	}
	if n := freeTasks(needTasks); n < needTasks {
		refuse("processes and threads", n, needTasks, "-u")
	}
}

func refuse(what string, have, need int, flag string) {
	fmt.Fprintf(os.Stderr, "fencelock: the limit on %s allows %d more, and %d are needed\ntry: a higher limit with ulimit %s\n", what, have, need, flag)
	os.Exit(supervise.Failed)
}

// freeFiles returns how many files can still be opened, or need if that is less.
func freeFiles(need int) (n int) {
	var fds []int
	for range need {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err == unix.EMFILE {
			break
		}
		if n++; err == nil { // stdin may be closed
			fds = append(fds, fd)
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return n
}
