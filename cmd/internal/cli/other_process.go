//go:build unix

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// otherProcess is a process that is not a child of this one.
type otherProcess struct {
	process *os.Process
	ended   <-chan struct{} // closed when it has ended; nil means never
}

var errNoProcess = errors.New("there is no such process")

// watchProcess returns a running process.
func watchProcess(pid int) (*otherProcess, error) {
	p, err := os.FindProcess(pid) // on Linux by a pidfd, so that a later process with the same number does not count
	if err == nil {
		if err = p.Signal(unix.Signal(0)); errors.Is(err, os.ErrPermission) {
			err = nil // it belongs to another user
		} else if errors.Is(err, os.ErrProcessDone) {
			err = errNoProcess
		}
	}
	ended := supervise.Ended(pid)
	select {
	case <-ended: // a zombie
		err = cmp.Or(err, errNoProcess)
	default:
	}
	if err != nil {
		return nil, Exit(ExitUsage, fmt.Errorf("--with-pid %d: %w", pid, err))
	}
	return &otherProcess{process: p, ended: ended}, nil
}

// send sends a signal, unless the process has ended.
func (n *otherProcess) send(s os.Signal) {
	if n.process != nil {
		_ = n.process.Signal(s)
	}
}
