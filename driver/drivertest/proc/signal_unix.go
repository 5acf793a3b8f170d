//go:build unix

package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Freeze stops the process with SIGSTOP, and returns when it has stopped.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.frozen.Store(true)
	Freeze(t, p.cmd.Process)
}

// Thaw resumes the process.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	Thaw(t, p.cmd.Process)
}

// Freeze stops any process, such as a server started by the test, with SIGSTOP. It returns when the
// process has stopped, if the system reports that.
func Freeze(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	for range 200 {
		if frozen(p) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// frozen reports whether every thread of the process has stopped. Without /proc it always returns
// false.
func frozen(p *os.Process) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
	for _, stat := range threads {
		b, err := os.ReadFile(stat)
		i := bytes.LastIndexByte(b, ')')
		if err != nil || i < 0 || len(b) <= i+2 || b[i+2] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}

// Thaw resumes any process.
func Thaw(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
