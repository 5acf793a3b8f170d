//go:build unix

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wrapped is a "fencelock run" whose command has started.
type wrapped struct {
	*exec.Cmd
	child, grandchild int
}

// startWrapped runs a shell that has a child of its own.
func startWrapped(t *testing.T, url string, flags ...string) wrapped {
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if url == "" {
		url = "file://" + filepath.Join(dir, "locks")
	}
	pids := filepath.Join(dir, "pids")
	args := append([]string{"run", "--url", url}, flags...)
	script := `trap '' USR1; sleep 600 & trap 'echo yes >"$0.guarded"' USR1; echo $$ $! >"$0.new"; mv "$0.new" "$0"; wait; wait`
	args = append(args, "x", "--", "sh", "-c", script, pids)
	w := wrapped{Cmd: exec.Command("fencelock", args...)}
	w.Stderr = t.Output()
	must(t, w.Start())
	t.Cleanup(func() { w.Process.Kill() })
	eventually(t, "the command starts", func() bool {
		text, err := os.ReadFile(pids)
		fields := strings.Fields(string(text))
		if err != nil || len(fields) != 2 {
			return false
		}
		w.child, _ = strconv.Atoi(fields[0])
		w.grandchild, _ = strconv.Atoi(fields[1])
		return true
	})
	// Who passes signals on has told its watchdog whom to kill.
	must(t, w.Process.Signal(unix.SIGUSR1))
	eventually(t, "the command is guarded", func() bool {
		_, err := os.Stat(pids + ".guarded")
		return err == nil
	})
	return w
}

// bothGone waits until neither process runs; a corpse does not.
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
	w := startWrapped(t, "")
	must(t, w.Process.Kill())
	w.Wait()
	w.bothGone(t)
}

func TestRunWrapperFrozen(t *testing.T) {
	t.Parallel()
	w := startWrapped(t, "mem:", "--ttl", "5s") // which a busy machine renews in time
	must(t, w.Process.Signal(unix.SIGSTOP))
	frozen := time.Now()
	w.bothGone(t)
	t.Logf("a lease of 5s: the command was gone %v after the freeze", time.Since(frozen))
	must(t, w.Process.Signal(unix.SIGCONT))
	var exit *exec.ExitError
	if err := w.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Fatalf("got %v, want exit status 76", err)
	}
}

func TestRunTerminated(t *testing.T) {
	w := startWrapped(t, "", "--kill-after", "200ms")
	must(t, w.Process.Signal(unix.SIGTERM))
	w.Wait()
	if code := w.ProcessState.ExitCode(); code != exitSignal+int(unix.SIGTERM) {
		t.Fatalf("got %d, want 143", code)
	}
	w.bothGone(t)
}

// A watchdog that ended the command says so with its exit code, and the lock counts as
// lost even if the wrapper did not notice.
func TestWatchdogTellsThatItKilled(t *testing.T) {
	const exited = 8 // the exit code is above the signal in a wait status
	for _, c := range []struct {
		watchdog, command unix.WaitStatus
		want              bool
	}{
		{exitLost << exited, unix.WaitStatus(unix.SIGKILL), true},
		{exitLost << exited, 0, false}, // it came too late
		{0, unix.WaitStatus(unix.SIGKILL), false},
		{unix.WaitStatus(unix.SIGKILL), unix.WaitStatus(unix.SIGKILL), false},
	} {
		ch := &child{status: c.command}
		ch.onWatchdogEnd(waited{1, c.watchdog})
		if got := ch.killedByWatchdog(); got != c.want {
			t.Errorf("watchdog %#x, command %#x: %v", c.watchdog, c.command, got)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("boom"), 1},
		{&exitError{code: 7}, 7},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

// freezing is a wrapper that stops itself between the start of its command and the
// moment when its watchdog would hear of it.
func freezing() {
	w, err := startWatchdog()
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread()                   // the kernel ties the parent-death signal to the thread that forks
	w.until(time.Now().Add(8 * time.Second)) // by then it has started it, and stands still
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	pid, err := startProcess("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Sys: attr})
	if err != nil {
		panic(err)
	}
	fmt.Println(pid)
	unix.Kill(os.Getpid(), unix.SIGSTOP)
	select {}
}

// A watchdog that comes to run when the deadline is long over, after a freeze or on a busy
// machine, reads the number of the command before it takes it for unknown, and kills the
// wrapper.
func TestLateWatchdogReadsItsPipe(t *testing.T) {
	for _, c := range []struct {
		told  []string
		kill  bool
		group int
	}{
		{[]string{"until 1", "group 7"}, true, 7},
		{[]string{"until 1", "until 2", "group 7"}, true, 7},
		{[]string{"until 1"}, true, 0},
		{[]string{"until 1", "goodbye"}, false, 0},
	} {
		lines := make(chan string, len(c.told))
		for _, line := range c.told {
			lines <- line
		}
		w := patrol{due: math.MaxInt64}
		if kill := w.watch(lines); kill != c.kill || w.group != c.group {
			t.Errorf("told %q: kills %v, group %d", c.told, kill, w.group)
		}
	}
}

// TestWrapperThatFreezesAsItStarts: the watchdog knows the deadline before there is a
// command, and kills the wrapper whose command it was not told of.
func TestWrapperThatFreezesAsItStarts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills a command with its parent")
	}
	cmd := exec.Command("freezing")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	var pid int
	_, err = fmt.Fscan(out, &pid)
	must(t, err)
	eventually(t, "the command is gone", func() bool { return !runs(pid) })
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the wrapper: %v", err)
	}
}
