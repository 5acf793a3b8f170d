//go:build unix

package hosttest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// Freeze stops a process, as SIGSTOP does, and returns when it stands still.
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

// frozen asks the system whether the process stands still; without /proc it
// never knows.
func frozen(p *os.Process) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	i := bytes.LastIndexByte(b, ')')
	return err == nil && i >= 0 && len(b) > i+2 && b[i+2] == 'T'
}

// Thaw lets a process go on.
func Thaw(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
