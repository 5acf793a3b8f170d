//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// Stop shuts the server down (fast mode), ending all sessions.
func (p *Postgres) Stop(t hosttest.TB) {
	t.Helper()
	p.end(t, syscall.SIGINT)
}

// Restart stops the server if it runs, and starts it again on the same port.
func (p *Postgres) Restart(t hosttest.TB) {
	t.Helper()
	p.mustBeOwn(t)
	if p.runs() {
		p.Stop(t)
	}
	if err := p.start(t); err != nil {
		t.Fatal(err)
	}
}

// Crash shuts the server down without a checkpoint (immediate mode) and starts it again: it
// recovers as after a crash, with empty UNLOGGED tables.
func (p *Postgres) Crash(t hosttest.TB) {
	t.Helper()
	p.end(t, syscall.SIGQUIT)
	p.Restart(t)
}

// Kill ends all processes of the server by SIGKILL, as a crash of its host would. Clients'
// connections are closed. Restart starts it again.
func (p *Postgres) Kill(t hosttest.TB) {
	t.Helper()
	p.mustBeOwn(t)
	if !p.runs() {
		return
	}
	// A postmaster that stands still neither reaps nor forks, so the numbers of
	// its children stay theirs.
	p.signal(t, syscall.SIGSTOP, p.PID())
	p.waitFor(t, "TZ", p.PID())
	children := p.children()
	p.signal(t, syscall.SIGKILL, children...)
	p.waitFor(t, "Z", children...)
	p.signal(t, syscall.SIGKILL, p.PID())
	p.waitGone(t)
	p.freeSegment()
}

// Freeze stops all processes of the server, as SIGSTOP does, and returns when they have stopped:
// connections stay open and are not answered.
func (p *Postgres) Freeze(t hosttest.TB) {
	t.Helper()
	p.mustBeOwn(t)
	p.signal(t, syscall.SIGSTOP, p.PID())
	p.waitFor(t, "T", p.PID())
	children := p.children()
	p.signal(t, syscall.SIGSTOP, children...)
	p.waitFor(t, "TZ", children...)
}

// Thaw resumes a frozen server.
func (p *Postgres) Thaw(t hosttest.TB) {
	t.Helper()
	p.mustBeOwn(t)
	p.signal(t, syscall.SIGCONT, p.children()...)
	p.signal(t, syscall.SIGCONT, p.PID())
}

// FreezeBackend stops the process that serves a connection, and returns when it has stopped.
// ThawBackend, Thaw and the end of the test resume it.
func (p *Postgres) FreezeBackend(t hosttest.TB, backend uint32) {
	t.Helper()
	p.mustBeOwn(t) // the backend may hold a latch that all need
	p.signal(t, syscall.SIGSTOP, int(backend))
	p.waitFor(t, "TZ", int(backend))
}

// ThawBackend resumes a frozen backend.
func (p *Postgres) ThawBackend(t hosttest.TB, backend uint32) {
	t.Helper()
	p.signal(t, syscall.SIGCONT, int(backend))
}

// Terminate ends one backend, as pg_terminate_backend does.
func (p *Postgres) Terminate(t hosttest.TB, backend uint32) {
	t.Helper()
	if p.Query(t, "SELECT pg_terminate_backend($1)", int32(backend)) != "true" {
		t.Fatalf("there is no backend %d", backend)
	}
}

// mustBeOwn fails the test if others use the server too.
func (p *Postgres) mustBeOwn(t hosttest.TB) {
	t.Helper()
	if p.shared {
		t.Fatal("other tests share this server: use one of StartPostgres")
	}
}

// end sends the postmaster a signal to shut down and waits until it has.
func (p *Postgres) end(t hosttest.TB, how syscall.Signal) {
	t.Helper()
	p.mustBeOwn(t)
	p.signal(t, how, p.PID())
	p.waitGone(t)
}

// discard ends the server, whatever state it is in, with its directory.
func (p *Postgres) discard(t hosttest.TB) {
	t.Helper()
	if p.cmd != nil && p.runs() {
		p.Thaw(t)
		p.end(t, syscall.SIGQUIT)
	}
	p.home.Remove(t)
}

func (p *Postgres) runs() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

func (p *Postgres) waitGone(t hosttest.TB) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(patience):
		t.Fatalf("postgres does not end: %s", p.home.Log())
	}
}

// signal sends a signal to processes of this server. It is no error if one of them
// has just ended.
func (p *Postgres) signal(t hosttest.TB, sig syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("signal %v to %d: %v", sig, pid, err)
		}
	}
}

// children lists the processes of the postmaster: each leads a process group of
// its own, so signals to a group would miss them.
func (p *Postgres) children() []int {
	var pids []int
	for _, r := range processes() {
		if r.parent == p.PID() && r.pid > 1 {
			pids = append(pids, r.pid)
		}
	}
	return pids
}

// waitFor returns when each process is in one of the states, or gone.
func (p *Postgres) waitFor(t hosttest.TB, states string, pids ...int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if allIn(states, pids) {
			return
		}
	}
	t.Fatalf("the processes %v do not come to state %s", pids, states)
}

func allIn(states string, pids []int) bool {
	return !slices.ContainsFunc(processes(), func(r running) bool {
		return slices.Contains(pids, r.pid) && strings.IndexByte(states, r.state) < 0
	})
}

// freeSegment removes the shared memory that a killed server leaves behind, as a
// reboot would. Its number is the last one of the seventh line of postmaster.pid.
func (p *Postgres) freeSegment() {
	b, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 7 {
		return
	}
	var key, id int
	if n, _ := fmt.Sscan(lines[6], &key, &id); n == 2 {
		_ = exec.Command("ipcrm", "-m", strconv.Itoa(id)).Run() // gone already is as good
	}
}
