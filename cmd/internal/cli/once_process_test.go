//go:build unix

package cli

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// TestOnceWhoseReaderDoesNotRead: the outcome is stored when the command has ended, even if nobody
// reads the output, and other processes get it. A signal ends a process that waits for its reader,
// whether it ran the command or repeats a stored outcome.
func TestOnceWhoseReaderDoesNotRead(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: nobody reads the output", verdict.Safe)
	out, err := exec.Command("seq", "1", "5000").Output()
	must(t, err)
	for _, blocked := range []string{"stdout", "stderr"} {
		t.Run(blocked, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			// signalled runs once with the key k and one blocked stream. When the other stream has
			// delivered all output and during has returned, it sends TERM to the process.
			signalled := func(file string, during func()) {
				t.Helper()
				f, err := os.Create(h.path(file))
				must(t, err)
				defer f.Close()
				cmd := h.command("fencelock", "once", "k", "-c", "seq 1 5000 | tee /dev/stderr")
				cmd.Stdout, cmd.Stderr = f, fullPipe(t)
				if blocked == "stdout" {
					cmd.Stdout, cmd.Stderr = cmd.Stderr, cmd.Stdout
				}
				state := finish(t, cmd, func() {
					eventually(t, "the other stream is read", func() bool {
						text, err := os.ReadFile(f.Name())
						return err == nil && strings.Contains(string(text), string(out))
					})
					during()
					must(t, cmd.Process.Signal(unix.SIGTERM))
				})
				if state.ExitCode() != exitSignal+int(unix.SIGTERM) {
					t.Errorf("%s: %v", file, state)
				}
			}
			signalled("first", func() { signalled("second", func() {}) })
		})
	}
}

// TestOnceKeepsTheOutputOfAnOrphan: a process that the command started belongs to the command even
// after it has left its session, its parent and its environment. A child of the shell that became
// fencelock does not belong to the command.
func TestOnceKeepsTheOutputOfAnOrphan(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for range 2 {
		cmd := h.command("sh", "-c", `sleep 600 >/dev/null 2>&1 & echo $! >>strangers
			exec fencelock once k -c 'echo before; setsid env -i sh -c "sleep 0.5; echo after" &'`)
		cmd.Dir = h.dir
		var out strings.Builder
		cmd.Stdout = &out
		state := finish(t, cmd, nil)
		if !state.Success() || out.String() != "before\nafter\n" {
			t.Errorf("%v, and %q", state, out.String())
		}
	}
	pids, err := os.ReadFile(h.path("strangers"))
	must(t, err)
	for _, word := range strings.Fields(string(pids)) {
		if pid, err := strconv.Atoi(word); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
