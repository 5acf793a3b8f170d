//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// wrapped is a "fencelock run" or "fencelock elect" whose command has started.
type wrapped struct {
	*exec.Cmd
	pids              string // the file from which child and grandchild are read
	child, grandchild int
	said              *bytes.Buffer // what it has printed, to be read after Wait
}

// startWrapped runs a command that is a shell with a child.
func startWrapped(t *testing.T, verb, url string, flags ...string) wrapped {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if url == "" {
		url = "file://" + filepath.Join(dir, "locks")
	}
	pids := filepath.Join(dir, "pids")
	args := append([]string{verb, "--url", url}, flags...)
	script := `sleep 600 & echo $$ $! >"$0.new"; mv "$0.new" "$0"; wait`
	args = append(args, "x", "--", "sh", "-c", script, pids)
	w := wrapped{Cmd: exec.Command("fencelock", args...), pids: pids, said: new(bytes.Buffer)}
	w.Stderr = io.MultiWriter(t.Output(), w.said)
	must(t, w.Start())
	t.Cleanup(func() { w.Process.Kill() })
	eventually(t, "the command starts", w.started)
	return w
}

// started reads the process numbers. It returns false until the command has written them.
func (w *wrapped) started() bool {
	text, _ := os.ReadFile(w.pids) // the file may not exist yet
	n, _ := fmt.Sscan(string(text), &w.child, &w.grandchild)
	return n == 2
}

// bothGone waits until neither process runs. A zombie does not count as running.
func (w wrapped) bothGone(t *testing.T) {
	t.Helper()
	for _, pid := range []int{w.child, w.grandchild} {
		eventually(t, "the command and its child are gone", func() bool { return !runs(pid) })
	}
}

func runs(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(scriptPatience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not happen that %s", what)
		}
	}
}

func TestRunWrapperKilled(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: run is killed", verdict.Safe)
	for _, verb := range []string{"run", "elect"} {
		w := startWrapped(t, verb, "")
		must(t, w.Process.Kill())
		w.Wait()
		w.bothGone(t)
	}
}

// TestRunWrapperFrozen: if the wrapper is frozen, its command is killed before the lease expires.
// When the wrapper continues, run exits and elect campaigns again.
func TestRunWrapperFrozen(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: run is frozen", verdict.Safe)
	frozen := func(verb string) wrapped {
		w := startWrapped(t, verb, "mem:", "--ttl", "5s") // long enough to be renewed in time on a busy machine
		must(t, w.Process.Signal(unix.SIGSTOP))
		begun := time.Now()
		w.bothGone(t)
		t.Logf("a lease of 5s: the command of %s was gone %v after the freeze", verb, time.Since(begun))
		must(t, w.Process.Signal(unix.SIGCONT))
		return w
	}
	run, elect := frozen("run"), frozen("elect")
	var exit *exec.ExitError
	if err := run.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Fatalf("got %v, want exit status 76", err)
	}
	if n := strings.Count(run.said.String(), "lost"); n != 1 {
		t.Errorf("the loss was reported %d times", n)
	}
	eventually(t, "the command of another term starts", func() bool { return elect.started() && runs(elect.child) })
}

// TestMaxHoldWithoutAWatchdog: the maximum hold ends a command that has survived its watchdog.
func TestMaxHoldWithoutAWatchdog(t *testing.T) {
	t.Parallel()
	w := startWrapped(t, "run", "", "--on-lost", "ignore", "--max-hold", "5s", "-k", "1s")
	must(t, unix.Kill(watchdogOf(t, w), unix.SIGKILL))
	w.bothGone(t)
	w.Wait()
	if code := w.ProcessState.ExitCode(); code != exitCapped {
		t.Errorf("got %d, want %d", code, exitCapped)
	}
}

func TestRunTerminated(t *testing.T) {
	t.Parallel()
	w := startWrapped(t, "run", "", "--kill-after", "200ms")
	must(t, w.Process.Signal(unix.SIGTERM))
	w.Wait()
	if code := w.ProcessState.ExitCode(); code != exitSignal+int(unix.SIGTERM) {
		t.Fatalf("got %d, want 143", code)
	}
	w.bothGone(t)
}
