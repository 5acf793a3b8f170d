//go:build unix

package proc

import (
	"os"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/internal/freeze"
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
	if err := freeze.Process(p); err != nil {
		t.Fatal(err)
	}
}

// Thaw resumes any process.
func Thaw(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
