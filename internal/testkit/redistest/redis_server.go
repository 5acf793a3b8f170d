//go:build unix

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A server is a process of ours that ends, at the latest, with this one.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone and reaped
	untie func()        // see tied
}

// startServer starts cmd with its output appended to a log file.
func startServer(cmd *exec.Cmd, log string) (*server, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	untie, err := tied(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, ended: make(chan struct{}), untie: untie}
	go s.reap()
	return s, nil
}

// reap ends with the process.
func (s *server) reap() {
	defer close(s.ended)
	_ = s.cmd.Wait() // how it ended is in cmd.ProcessState
}

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *server) resume() error { return s.signal(syscall.SIGCONT) }

func (s *server) signal(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// end ends the process and returns when it is gone. One that does not heed the
// signal within 30 s is killed, and an error says so.
func (s *server) end(sig syscall.Signal) error {
	s.untie()
	if err := s.signal(sig); err != nil {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(30 * time.Second):
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	return fmt.Errorf("process %d did not heed signal %v for 30 s and was killed", s.pid(), sig)
}
