package cli

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

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
