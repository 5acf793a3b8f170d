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

// Freeze stops the process, as SIGSTOP does, and returns when it stands still.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.frozen.Store(true)
	Freeze(t, p.cmd.Process)
}

// Thaw lets the process go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	Thaw(t, p.cmd.Process)
}

// Freeze stops any process, such as a server that the test has started, and returns when it
// stands still, where the system tells.
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

// frozen asks the system whether each thread of the process stands still; without /proc it
// never knows.
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

// Thaw lets any process go on.
func Thaw(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
