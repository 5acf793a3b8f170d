//go:build unix

package cli

import (
	"bytes"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endedBySignalOf reports whether a process ended as one does that a signal ended.
func endedBySignalOf(state *os.ProcessState, s unix.Signal) bool {
	status := state.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == s || status.ExitStatus() == exitSignal+int(s)
}

// TestSignalDuringOnAcquire: a signal that arrives during --on-acquire ends elect with the code of
// the signal, also if the hook handles it and succeeds. The command does not start, --on-lose runs
// and the name is free.
func TestSignalDuringOnAcquire(t *testing.T) {
	t.Parallel()
	const hook = `trap 'echo x >caught' TERM INT HUP QUIT; echo x >begun; until test -e caught; do sleep 0.02; done`
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		for _, command := range [][]string{nil, {"--", "touch", "ran"}} {
			h := newHost(t)
			cmd := h.command("fencelock", append([]string{"elect", "--on-acquire", hook, "--on-lose", "echo x >over", "x"}, command...)...)
			cmd.Dir = h.dir
			state := finish(t, cmd, func() {
				appears(t, h.path("begun"))
				must(t, cmd.Process.Signal(s))
			})
			if !endedBySignalOf(state, s) || exists(h.path("ran")) || !exists(h.path("over")) {
				t.Errorf("%v, command %q: %v; command ran: %v; --on-lose ran: %v", s, command, state, exists(h.path("ran")), exists(h.path("over")))
			}
			must(t, h.command("fencelock", "run", "-n", "x", "--", "true").Run())
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestSignalAtAnyTime: whenever a signal arrives between the first write of --on-acquire and the
// term, elect ends with the code of the signal.
func TestSignalAtAnyTime(t *testing.T) {
	t.Parallel()
	rounds := 20
	if os.Getenv("FENCELOCK_SLOW") != "" {
		rounds = 400
	}
	signals := []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGABRT}
	h := newHost(t)
	for round := range rounds {
		s, begun, delay := signals[round%len(signals)], h.path("begun"), time.Duration(rand.Int64N(int64(5*time.Millisecond)))
		_ = os.Remove(begun)
		cmd := h.command("fencelock", "elect", "--on-acquire", "echo x >begun", "x")
		cmd.Dir = h.dir
		state := finish(t, cmd, func() {
			for end := time.Now().Add(scriptPatience); !exists(begun) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(delay)
			must(t, cmd.Process.Signal(s))
		})
		if !endedBySignalOf(state, s) {
			t.Errorf("%v after %v: %v", s, delay, state)
		}
	}
}

// TestSignalAfterTheGrant: a signal that reaches acquire between the grant and the printed handle
// ends it with the code of the signal, and the lock is released. The keeper gets the signal too and
// would release a lock that acquire has reported.
func TestSignalAfterTheGrant(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		h := newHost(t)
		free := h.holdUntil(t, h.path("free"))
		cmd := h.command("fencelock", "acquire", "--detach", "--max-hold", "1h", "x")
		state := finish(t, cmd, func() {
			h.waits(t)
			must(t, cmd.Process.Signal(unix.SIGSTOP))
			free()
			eventually(t, "the keeper holds x", func() bool {
				out, err := h.command("fencelock", "ls").Output()
				return err == nil && bytes.Contains(out, []byte("x"))
			})
			must(t, cmd.Process.Signal(unix.SIGTERM))
			must(t, cmd.Process.Signal(unix.SIGCONT))
		})
		if !endedBySignalOf(state, unix.SIGTERM) {
			t.Errorf("round %d: %v", round, state)
		}
		eventually(t, "x is free", func() bool { return h.command("fencelock", "run", "-n", "x", "--", "true").Run() == nil })
	}
}

// TestSignalsOfUI: INT and TERM are the usual way to end ui. Another signal is not a success.
func TestSignalsOfUI(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for s, want := range map[unix.Signal]int{unix.SIGTERM: 0, unix.SIGINT: 0, unix.SIGHUP: 129, unix.SIGQUIT: 131, unix.SIGABRT: 134} {
		cmd := h.command("fencelock", "ui", "--listen", "127.0.0.1:0")
		out, err := os.Create(h.path("url"))
		must(t, err)
		cmd.Stdout = out
		state := finish(t, cmd, func() {
			appears(t, out.Name())
			must(t, cmd.Process.Signal(s))
		})
		out.Close()
		if state.ExitCode() != want {
			t.Errorf("%v: %v, want code %d", s, state, want)
		}
	}
}
