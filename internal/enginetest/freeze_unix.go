//go:build unix

package enginetest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// Freeze stops the process, as SIGSTOP does, and returns when it stands still.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	for range 200 {
		if p.frozen() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// frozen asks the system whether the process stands still; without /proc it
// never knows.
func (p *Process) frozen() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	i := bytes.LastIndexByte(b, ')')
	return err == nil && i >= 0 && len(b) > i+2 && b[i+2] == 'T'
}

// Thaw lets the process go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
