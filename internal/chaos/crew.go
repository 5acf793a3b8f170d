//go:build unix

package chaos

import (
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
		URL: r.Own.URL, Gate: r.gates[worker], TTL: r.TTL, Names: r.Own.Names, Twins: r.Twins, Worker: lane(worker),
		Process: fmt.Sprintf("%s-%d", lane(worker), r.births), Dir: r.dir, Seed: r.seed<<16 + r.births, Sabotage: r.Sabotage,
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
	// An interrupt typed at the terminal reaches the harness only. When that ends, the worker's input
	// does; the kernel continues one that is frozen, since its group has become an orphan.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.in, err = m.cmd.StdinPipe()
	out, err2 := m.cmd.StdoutPipe()
	if err := cmp.Or(err, err2, m.cmd.Start()); err != nil {
		r.t.Fatal(err)
	}
	r.crew[worker] = m
	_ = json.NewEncoder(m.in).Encode(j) // a worker that has died is noticed when it is awaited
	go r.count(m, out)
}

// count counts a worker's acquisitions until it ends.
func (r *round) count(m *member, out io.Reader) {
	defer close(m.read)
	once := sync.OnceFunc(func() { close(m.first) })
	for some := make([]byte, 64); ; once() {
		n, err := out.Read(some)
		if err != nil {
			return
		}
		r.Live.Acquired.Add(int64(n))
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
	r.record(history.Event{Worker: lane(worker), Kind: history.Death})
}
