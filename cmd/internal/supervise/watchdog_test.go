//go:build unix

package supervise_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// TestUntil: the watchdog starts to kill at least KillReserve before the deadline. The result for a
// past deadline is not zero, which would mean no deadline.
func TestUntil(t *testing.T) {
	until, now := supervise.Until(time.Now().Add(time.Hour))
	if left := until - now; left > time.Hour-supervise.KillReserve || left < time.Hour/2 {
		t.Errorf("it begins to kill in %v", left)
	}
	if until, _ := supervise.Until(time.Time{}.Add(time.Hour)); until <= 0 {
		t.Errorf("a deadline long ago is %v, which would be none", until)
	}
}

// TestSendOfAFrozenProcess: a process that was frozen before it writes to the socket sends its line
// nevertheless. Otherwise a wrapper on a busy machine would kill its watchdog.
func TestSendOfAFrozenProcess(t *testing.T) {
	n, err := supervise.LateSends()
	if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d lines were sent, then: %v", n, err)
	}
}

// TestSendToAReader: a line is sent if there is room for it, even if most of the socket is full.
// Otherwise a burst of signals would make the wrapper kill a watchdog that reads them.
func TestSendToAReader(t *testing.T) {
	if err := supervise.SendToReader(); err != nil {
		t.Error(err)
	}
}

// TestStartAfterTheDeadline: if the wrapper was frozen before the start and the deadline has
// passed, the watchdog does not start the command.
func TestStartAfterTheDeadline(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	out, err := exec.Command("late", "/usr/bin/touch", ran).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "false 0") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command was started")
	}
}
