//go:build unix

package chaos

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/reexec"
)

// A member is a process of this program that takes locks.
type member struct {
	*reexec.Worker
	first chan struct{} // closed when it has acquired a lock
	read  chan struct{} // closed when its output has ended
}

// launch starts a worker in its lane. It ends with the round.
func (r *round) launch(worker int) {
	r.births++
	j := job{
		URL: r.Own.URL, Resolver: r.resolvers[worker], TTL: r.TTL, Names: r.Own.Names, Twins: r.Twins, Worker: lane(worker),
		Process: fmt.Sprintf("%s-%d", lane(worker), r.births), Dir: r.dir, Seed: r.seed<<16 + r.births, Sabotage: r.Sabotage,
	}
	if r.Rate > 0 {
		j.Pause = time.Duration(float64(r.Workers*hands) / r.Rate * float64(time.Second))
	}
	w, err := reexec.Start(jobName, j)
	if err != nil {
		r.t.Fatal(err)
	}
	m := &member{w, make(chan struct{}), make(chan struct{})}
	r.crew[worker] = m
	go func() { // ends with the worker
		defer close(m.read)
		for first := sync.OnceFunc(func() { close(m.first) }); m.Listen(); first() {
			r.Live.Acquired.Add(1)
		}
	}()
}

// signal sends a signal to the process.
func (m *member) signal(s syscall.Signal) { _ = m.Process().Signal(s) }

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
			r.t.Fatalf("seed %d: worker %d has ended by itself: %v", r.seed, worker, m.Wait())
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
		<-m.read
		if err := m.Wait(); err != nil {
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
	<-m.read
	r.crew[worker] = nil
	state := m.Kill()
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signal() != syscall.SIGKILL {
		r.t.Errorf("seed %d: worker %d has ended by itself: %v", r.seed, worker, state)
	}
	r.record(history.Event{Worker: lane(worker), Kind: history.Death})
}
