//go:build unix

package proctest

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// Freeze stops the process, as SIGSTOP does, and returns when it stands still.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	hosttest.Freeze(t, p.cmd.Process)
}

// Thaw lets the process go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	hosttest.Thaw(t, p.cmd.Process)
}
