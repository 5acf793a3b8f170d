package chaostest

import (
	"cmp"
	"os/exec"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A Process is a process of the service.
type Process struct {
	run    *Run
	worker string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended, and its death is recorded
	err    error         // of its end; set before ended is closed
	thawed func()        // records the end of Freeze; further calls mean nothing
}

// Start starts a process of the service, which is killed at the end of the test. Worker is its lane
// in the history: a process that takes the place of a dead one has the same. What the process
// prints is in the log of the test, unless cmd says otherwise.
//
// Cmd must be the service itself. If it is a shell or go run, Kill and Freeze do not reach the
// service that it starts.
func (r *Run) Start(worker string, cmd *exec.Cmd) *Process {
	r.t.Helper()
	if before := r.processes[worker]; worker == "" || before != nil && before.running() {
		r.t.Fatalf("the name %q of a worker is empty, or that of a process that still runs", worker)
	}
	cmd.Env = append(cmd.Environ(), history.Env(r.Dir, worker)...)
	cmd.Stdout, cmd.Stderr = cmp.Or(cmd.Stdout, r.t.Output()), cmp.Or(cmd.Stderr, r.t.Output())
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, time.Second) // a process that it has started may keep its output open
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	p := &Process{run: r, worker: worker, cmd: cmd, ended: make(chan struct{}), thawed: func() {}}
	go func() { // ends with the process
		defer close(p.ended)
		p.err = cmd.Wait()
		r.record(history.Event{Kind: history.Death, Worker: worker})
	}()
	r.t.Cleanup(p.Kill)
	r.processes[worker] = p
	return p
}

func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill kills the process, as kill -9 does, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	p.thawed()
}

// Wait returns when the process has ended, with the error of its end.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// Freeze stops the process, as kill -STOP does, until Thaw: it stands still in the middle of what it
// does, and its connections stay open.
func (p *Process) Freeze() {
	p.run.t.Helper()
	p.thawed = p.run.Fault("freeze", p.worker)
	if err := p.cmd.Process.Signal(stop); err != nil {
		p.run.t.Fatal(err)
	}
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() {
	p.run.t.Helper()
	if err := p.cmd.Process.Signal(resume); err != nil {
		p.run.t.Fatal(err)
	}
	p.thawed()
}
