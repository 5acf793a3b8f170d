package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// inDebugger stops a process as a debugger does, until the end of the test. Its parent is not notified
// of such a stop, and SIGCONT does not end it.
func inDebugger(t *testing.T, pid int) {
	t.Helper()
	attached, done, over := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() { // ends with the test
		defer close(over)
		runtime.LockOSThread() // this thread is the debugger; it ends here, and the kernel detaches it
		attached <- stopThreads(pid)
		<-done
	}()
	t.Cleanup(func() { close(done); <-over })
	if err := <-attached; err == unix.EPERM {
		t.Skip("this machine does not let a process debug its descendants")
	} else if err != nil {
		t.Fatal(err)
	}
}

// stopThreads stops all threads of a process, also those that it starts meanwhile.
func stopThreads(pid int) error {
	for stopped := []int{}; ; {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) == len(stopped) {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil || slices.Contains(stopped, tid) {
				continue
			}
			if err := unix.PtraceSeize(tid); err != nil {
				return err
			}
			if err := unix.PtraceInterrupt(tid); err != nil {
				return err
			}
			if _, err := unix.Wait4(tid, nil, unix.WALL, nil); err != nil {
				return err
			}
			stopped = append(stopped, tid)
		}
	}
}

// TestWatchdogInADebugger: if a debugger has stopped the watchdog, fencelock ends the command itself
// before the lease ends, when it is asked to end, and when the lock is broken.
func TestWatchdogInADebugger(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: the watchdog is stopped by a debugger", verdict.Safe)
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		h, _ := chainHost(t, "files")
		server := redistest.StartRedis(t)
		remote := proxy(t, server.Addr())
		old := h.starts(t, "redis://"+remote.Addr(), allForms(), len(forms))
		inDebugger(t, watchdogOf(t, wrapped{Cmd: old}))
		drop(remote)(t)
		h.succeeds(t, "redis://"+server.Addr())
	})
	t.Run("break", func(t *testing.T) {
		t.Parallel()
		h, url := chainHost(t, "files")
		old := h.starts(t, url, allForms(), len(forms))
		inDebugger(t, watchdogOf(t, wrapped{Cmd: old}))
		must(t, h.in(url, "break", "x", "--reason", "a test").Run())
		h.succeeds(t, url)
	})
	for name, flags := range map[string][]string{"TERM": nil, "TERM/ignored loss": {"--on-lost", "ignore"}, "max-hold": {"--max-hold", "5s"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWrapped(t, "run", "", append(flags, "-k", "1s")...)
			inDebugger(t, watchdogOf(t, w))
			if strings.HasPrefix(name, "TERM") {
				must(t, w.Process.Signal(unix.SIGTERM))
			}
			_ = w.Wait() // its exit code is that of the end
			for _, pid := range []int{w.child, w.grandchild} {
				if runs(pid) {
					t.Errorf("process %d of the command runs when fencelock has ended", pid)
				}
			}
		})
	}
}

// TestSignalsWithoutAWatchdog: signals that a watchdog has not passed on before it is killed reach the
// command, and no others do a second time.
func TestSignalsWithoutAWatchdog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	script := `trap 'echo INT >>"$0"' INT; trap 'echo USR1 >>"$0"' USR1; trap 'echo end >>"$0"; exit' USR2; echo up >>"$0"; while :; do sleep 0.05; done`
	w := wrapped{Cmd: exec.Command("fencelock", "run", "--url", "mem:", "--on-lost", "ignore", "x", "--", "sh", "-c", script, log)}
	must(t, w.Start())
	t.Cleanup(func() { w.Process.Kill() })
	wants := func(want string) {
		t.Helper()
		var got []byte
		for end := time.Now().Add(scriptPatience); string(got) != want; time.Sleep(10 * time.Millisecond) {
			if got, _ = os.ReadFile(log); time.Now().After(end) { // it may not exist yet
				w.Process.Signal(unix.SIGUSR2)
				t.Fatalf("the command got %q, want %q", got, want)
			}
		}
	}
	wants("up\n")
	must(t, w.Process.Signal(unix.SIGINT))
	wants("up\nINT\n")
	watchdog := watchdogOf(t, w)
	inDebugger(t, watchdog)
	must(t, w.Process.Signal(unix.SIGUSR1))
	time.Sleep(100 * time.Millisecond) // if the wrapper takes longer, it passes the signal on by itself
	must(t, unix.Kill(watchdog, unix.SIGKILL))
	wants("up\nINT\nUSR1\n")
	must(t, w.Process.Signal(unix.SIGUSR2))
	_ = w.Wait()
	wants("up\nINT\nUSR1\nend\n")
}

// TestFrozenWrapperIsBroken: break ends a frozen wrapper on files, and the name is free when the
// watchdog has ended all processes of the command.
func TestFrozenWrapperIsBroken(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: run is frozen on files, and its lock is broken", verdict.Safe)
	for _, verb := range []string{"break", "resign"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			h, url := chainHost(t, "files")
			old := h.starts(t, url, allForms(), len(forms))
			must(t, old.Process.Signal(unix.SIGSTOP))
			ended := make(chan error, 1)
			go func() { ended <- h.in(url, verb, "x", "--reason", "a test").Run() }() // ends with the break
			h.succeeds(t, url)                                                        // it waits for the name, and must not get it too early
			must(t, <-ended)
		})
	}
}
