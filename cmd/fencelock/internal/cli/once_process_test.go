//go:build unix

package cli

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnceWhoseReaderDoesNotRead: the outcome is stored when the command has ended, and
// others get it, whether anybody reads the output of the first. A signal ends who waits for
// a reader, also who only repeats what was kept.
func TestOnceWhoseReaderDoesNotRead(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("seq", "1", "5000").Output()
	must(t, err)
	for _, blocked := range []string{"stdout", "stderr"} {
		t.Run(blocked, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			// signalled asks for the key, and is told to end when all has come by the stream
			// that is not blocked, and during has returned.
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

// TestOnceKeepsTheOutputOfAnOrphan: what has left the session of the command, its parent and its
// environment is the command's all the same, also beside processes that are not.
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
