//go:build unix

package chaos

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A member is a process of this program that takes locks.
type member struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	first chan struct{} // closed when it has acquired a lock
	read  chan struct{} // closed when its output has ended
}

// launch starts a worker in its lane. It ends with the round.
func (r *round) launch(worker int) {
	r.births++
	j := job{
		Kind: r.Engine, Known: r.known(worker), URL: r.Own.URL, Names: r.Own.Names, Twins: r.Twins, Worker: lane(worker), Process: fmt.Sprintf("%s-%d", lane(worker), r.births),
		Dir: r.dir, Seed: r.seed<<16 + r.births, Sabotage: r.Sabotage,
	}
	if r.Rate > 0 {
		j.Pause = time.Duration(float64(r.Workers*hands) / r.Rate * float64(time.Second))
	}
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	m := &member{cmd: exec.Command(exe), first: make(chan struct{}), read: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), envWorker+"=1")
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = tied()
	m.in, err = m.cmd.StdinPipe()
	out, err2 := m.cmd.StdoutPipe()
	if err := cmp.Or(err, err2, m.cmd.Start()); err != nil {
		r.t.Fatal(err)
	}
	r.crew[worker] = m
	_ = json.NewEncoder(m.in).Encode(j) // a worker that has died is noticed when it is awaited
	go r.hear(m, worker, out)
}

// hear reads what a worker says until it ends.
func (r *round) hear(m *member, worker int, out io.Reader) {
	defer close(m.read)
	lines, answers := bufio.NewScanner(out), json.NewEncoder(m.in)
	told, once := 0, sync.OnceFunc(func() { close(m.first) })
	for lines.Scan() {
		var said message
		if json.Unmarshal(lines.Bytes(), &said) != nil {
			continue
		}
		if said.Dial != "" {
			_ = answers.Encode(way{said.Dial, r.wayTo(worker, said.Dial)})
		}
		if said.Acquired > told {
			r.Live.Acquired.Add(int64(said.Acquired - told))
			told = said.Acquired
			once()
		}
	}
}

// signal sends a signal to the process.
func (m *member) signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

// wait waits until the process has ended.
func (m *member) wait() error {
	<-m.read
	_ = m.in.Close()
	return m.cmd.Wait()
}

// awaitWorkers returns when each worker has had a lock: on a busy machine some start so late that
// all of the faults would be over.
func (r *round) awaitWorkers() {
	patience := time.After(time.Minute)
	for worker, m := range r.crew {
		select {
		case <-m.first:
		case <-r.ctx.Done():
			return
		case <-m.read:
			r.t.Fatalf("seed %d: worker %d has ended by itself: %v", r.seed, worker, m.wait())
		case <-patience:
			r.t.Fatalf("seed %d: worker %d had no lock in a minute without a fault", r.seed, worker)
		}
	}
}

// killAll ends all workers in the middle of what they do.
func (r *round) killAll() {
	for _, m := range r.crew {
		if m != nil {
			m.signal(syscall.SIGKILL)
		}
	}
	for worker := range r.crew {
		r.kill(worker)
	}
}

// endInOrder lets the workers go on without a fault until whatever the faults left behind must be
// over, and has them end in order then: they leave nothing behind. It returns false if the round is
// to end early. The workers, of which some may have started this moment, still run then.
func (r *round) endInOrder() bool {
	if !r.sleep(history.Now() + 2*r.TTL + r.extra()) {
		return false
	}
	if r.awaitWorkers(); r.ctx.Err() != nil {
		return false
	}
	for _, m := range r.crew {
		m.signal(syscall.SIGTERM)
	}
	for worker, m := range r.crew {
		patience := time.AfterFunc(30*time.Second, func() { m.signal(syscall.SIGABRT) }) // it prints what it is doing
		if err := m.wait(); err != nil {
			r.t.Errorf("seed %d: worker %d has not ended in order within 30 s: %v", r.seed, worker, err)
		}
		patience.Stop()
		r.crew[worker] = nil
	}
	return true
}

// kill ends a worker as kill -9 does. One that has ended by itself is a failure.
func (r *round) kill(worker int) {
	m := r.crew[worker]
	if m == nil {
		return // it has ended
	}
	m.signal(syscall.SIGKILL)
	_ = m.wait()
	r.crew[worker] = nil
	if s, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signal() != syscall.SIGKILL {
		r.t.Errorf("seed %d: worker %d has ended by itself: %v", r.seed, worker, m.cmd.ProcessState)
	}
	if err := r.deaths.Write(history.Event{Worker: lane(worker), Kind: history.Death}); err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
}

// wayTo returns the way of a worker to an address that is not one of a server that was started.
func (r *round) wayTo(worker int, addr string) string {
	for _, p := range r.waysOf(worker, everyServer) {
		if p.Target() == addr {
			return p.Addr()
		}
	}
	return r.addWay(worker, addr).Addr()
}
