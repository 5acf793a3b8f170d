//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// host is a directory in which a test runs commands. It contains their locks.
type host struct{ dir string }

func newHost(t *testing.T) host {
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return host{dir}
}

func (h host) path(name string) string { return filepath.Join(h.dir, name) }

// command returns a command whose FENCELOCK_URL names the locks of the host.
func (h host) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "FENCELOCK_URL=file://"+h.path("locks"))
	return cmd
}

// fullPipe returns the write end of a full pipe that is never read.
func fullPipe(t *testing.T) *os.File {
	var p [2]int
	syscall.ForkLock.RLock() // so that no command of another test inherits an end
	err := unix.Pipe(p[:])
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	syscall.ForkLock.RUnlock()
	must(t, err)
	err = unix.SetNonblock(p[1], true)
	for err == nil {
		_, err = unix.Write(p[1], make([]byte, 4096))
	}
	for err = nil; err == nil; {
		_, err = unix.Write(p[1], []byte{0})
	}
	must(t, unix.SetNonblock(p[1], false)) // like a pipe of a shell
	t.Cleanup(func() { unix.Close(p[0]) })
	return os.NewFile(uintptr(p[1]), "full")
}

// finish starts a command, calls during, and returns the state of the command when it has ended.
func finish(t *testing.T, cmd *exec.Cmd, during func()) *os.ProcessState {
	t.Helper()
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command, which the test kills
	if during != nil {
		during()
	}
	select {
	case <-ended:
	case <-time.After(scriptPatience):
		cmd.Process.Kill()
		<-ended
		t.Fatalf("%v does not end", cmd.Args)
	}
	return cmd.ProcessState
}

// holdUntil holds x until the file free exists. The returned function creates it.
func (h host) holdUntil(t *testing.T, free string) func() {
	t.Helper()
	holder := h.command("fencelock", "run", "x", "--", "sh", "-c", `while ! test -e "$0"; do sleep 0.05; done`, free)
	must(t, holder.Start())
	eventually(t, "x is held", func() bool { return h.command("fencelock", "run", "-n", "x", "--", "true").Run() != nil })
	return func() {
		must(t, os.WriteFile(free, []byte("x"), 0o600))
		holder.Wait()
	}
}

func appears(t *testing.T, path string) {
	t.Helper()
	eventually(t, path+" appears", func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
}

// TestStderrThatNobodyReads: with a stderr that is full or closed, a lost lock still ends the
// command, a waiter runs its command after the hand-over, and elect becomes the leader.
func TestStderrThatNobodyReads(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: nobody reads the output", verdict.Safe)
	for name, stderr := range map[string]func(*testing.T) *os.File{
		"full": fullPipe,
		"closed": func(t *testing.T) *os.File {
			r, w, err := os.Pipe()
			must(t, err)
			r.Close()
			return w
		},
	} {
		t.Run(name+"/loss", func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			ready := h.path("ready")
			cmd := h.command("fencelock", "-v", "run", "x", "--", "sh", "-c", `echo yes >"$0"; exec sleep 60`, ready)
			cmd.Stderr = stderr(t)
			state := finish(t, cmd, func() {
				appears(t, ready)
				must(t, os.RemoveAll(h.path("locks")))
			})
			if state.ExitCode() != exitLost {
				t.Fatalf("%v, want exit status 76", state)
			}
		})
		for _, verb := range []string{"run", "elect"} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				free := h.path("free")
				defer h.holdUntil(t, free)()
				ran := h.path("ran")
				cmd := h.command("fencelock", "-v", verb, "x", "--", "sh", "-c", `echo yes >"$0"`, ran)
				cmd.Stderr = stderr(t)
				finish(t, cmd, func() {
					must(t, os.WriteFile(free, []byte("x"), 0o600))
					appears(t, ran)
				})
			})
		}
	}
}

// TestStrangersAreLeftAlone: a process that was a child of this process before the command started
// is neither waited for nor killed.
func TestStrangersAreLeftAlone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	out, err := h.command("sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $!; exec fencelock run x -- true`).Output()
	must(t, err)
	job, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must(t, err)
	defer unix.Kill(job, unix.SIGKILL)
	if !runs(job) {
		t.Error("a job of the shell that became fencelock was killed")
	}
}

// TestOrphansBesideStrangers: a process of the command that has left the group and lost its parent
// is waited for, even if this process has foreign children.
func TestOrphansBesideStrangers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	left, ended := h.path("left"), h.path("ended")
	cmd := h.command("sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $! >stranger; exec fencelock run x -- \
		sh -c 'setsid sh -c "echo yes >$1; sleep 0.3; echo yes >$2" >/dev/null 2>&1 & while ! test -s "$1"; do sleep 0.02; done' - "$0" "$1"`, left, ended)
	cmd.Dir = h.dir
	state := finish(t, cmd, nil)
	text, err := os.ReadFile(h.path("stranger"))
	must(t, err)
	stranger, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	defer unix.Kill(stranger, unix.SIGKILL)
	if _, err := os.Stat(ended); err != nil || !state.Success() {
		t.Errorf("%v; the lock was released before the orphan ended: %v", state, err)
	}
}

// TestWatchdogSurvives: the watchdog has another process name than fencelock. If it is stopped, the
// wrapper continues it.
func TestWatchdogSurvives(t *testing.T) {
	t.Parallel()
	needProc(t)
	verdict.Is(t, "fencelock run: the watchdog is stopped", verdict.Safe)
	w := startWrapped(t, "run", "")
	watchdog := watchdogOf(t, w)
	must(t, unix.Kill(watchdog, unix.SIGSTOP))
	eventually(t, "the stopped watchdog goes on", func() bool { return wasResumed(t, watchdog) })
	must(t, w.Process.Kill())
	w.Wait()
	w.bothGone(t)
}

// wasResumed reports whether a process that was sent SIGSTOP goes on: the signal is no longer
// pending, and no thread is stopped, or runs and may be about to stop.
func wasResumed(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, pending, _ := strings.Cut(string(status), "ShdPnd:\t")
	pending, _, _ = strings.Cut(pending, "\n")
	signals, err := strconv.ParseUint(pending, 16, 64)
	must(t, err)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	must(t, err)
	for _, thread := range threads {
		if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") S ") {
			return false
		}
	}
	return signals&(1<<(unix.SIGSTOP-1)) == 0
}

// TestWatchdogKilled: if the watchdog is killed, the command is killed before the lock is released.
func TestWatchdogKilled(t *testing.T) {
	t.Parallel()
	needProc(t)
	verdict.Is(t, "fencelock run: the watchdog is killed", verdict.Safe)
	w := startWrapped(t, "run", "")
	must(t, unix.Kill(watchdogOf(t, w), unix.SIGKILL))
	if err := w.Wait(); exitCodeOf(err) != exitStart {
		t.Errorf("%v, want exit status 71", err)
	}
	for _, pid := range []int{w.child, w.grandchild} {
		if runs(pid) {
			t.Errorf("process %d of the command runs when fencelock has ended", pid)
		}
	}
}

func needProc(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/comm"); err != nil {
		t.Skip("the names of processes are looked up in /proc, which only Linux has")
	}
}

// watchdogOf waits until a wrapper has a child with the name of the watchdog, and returns it.
func watchdogOf(t *testing.T, w wrapped) (pid int) {
	t.Helper()
	eventually(t, "there is a watchdog", func() bool {
		for _, pid = range below(w.Process.Pid) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err == nil && strings.TrimSpace(string(comm)) == "lock-watchdog" {
				return true
			}
		}
		return false
	})
	return pid
}

// TestInterruptIsPassedUp: if SIGINT ends the command or the wait, fencelock dies of SIGINT too, so
// that a shell stops its loop.
func TestInterruptIsPassedUp(t *testing.T) {
	t.Parallel()
	interrupted := func(t *testing.T, cmd *exec.Cmd) {
		t.Helper()
		cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Errorf("%v, want a death by SIGINT", cmd.ProcessState)
		}
	}
	h := newHost(t)
	ready := h.path("ready")
	holder := h.command("fencelock", "run", "x", "--", "sh", "-c", `echo yes >"$0"; exec sleep 60`, ready)
	must(t, holder.Start())
	defer holder.Process.Kill()
	appears(t, ready)
	waiter := h.command("fencelock", "run", "x", "--", "true")
	must(t, waiter.Start())
	defer waiter.Process.Kill()
	h.waits(t)
	must(t, waiter.Process.Signal(os.Interrupt))
	interrupted(t, waiter)
	must(t, holder.Process.Signal(os.Interrupt))
	interrupted(t, holder)
	if err := h.command("fencelock", "run", "x", "--", "sh", "-c", "exit 130").Run(); exitCodeOf(err) != 130 {
		t.Errorf("%v, want exit status 130: the command chose it", err)
	}
}

// waits returns when a process waits for x.
func (h host) waits(t *testing.T) {
	t.Helper()
	eventually(t, "it waits", func() bool {
		out, err := h.command("fencelock", "--json", "status", "x").Output()
		return err == nil && strings.Contains(string(out), `"position":1`)
	})
}

func exitCodeOf(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

// TestProgramReplacedWhileItWaits: the file of the program may be replaced by a new version while
// it waits. The test is not parallel: a process that another test forks would have the new file
// open for writing for a moment, and the kernel refuses to execute such a file.
func TestProgramReplacedWhileItWaits(t *testing.T) {
	h := newHost(t)
	program := h.path("fencelock")
	original, err := exec.LookPath("fencelock")
	must(t, err)
	text, err := os.ReadFile(original)
	must(t, err)
	must(t, os.WriteFile(program, text, 0o755))
	free, ran, wrong := h.path("free"), h.path("ran"), h.path("wrong")
	defer h.holdUntil(t, free)()
	waiter := h.command(program, "run", "x", "--", "sh", "-c", `echo yes >"$0"`, ran)
	waiter.Stderr = t.Output()
	state := finish(t, waiter, func() {
		h.waits(t)
		must(t, os.Remove(program))
		must(t, os.WriteFile(program, []byte("#!/bin/sh\necho started >\""+wrong+"\"\n"), 0o755))
		must(t, os.WriteFile(free, []byte("x"), 0o600))
	})
	if !state.Success() {
		t.Errorf("%v, want success", state)
	}
	appears(t, ran)
	if _, err := os.Stat(wrong); err == nil {
		t.Error("the new program was started in the name of the old one")
	}
}

// below returns the descendants of pid.
func below(pid int) (all []int) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for row := range strings.Lines(string(out)) {
		var child, parent int
		fmt.Sscan(row, &child, &parent)
		children[parent] = append(children[parent], child)
	}
	all = children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}
