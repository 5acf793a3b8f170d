//go:build unix

// Package nemesistest disturbs processes that take locks in a store, and the servers of the store,
// and judges what the processes observed.
package nemesistest

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/faults"
)

// For is how long faults are injected, if the flag is set.
var For = flag.Duration("nemesis.for", 0, "how long faults are injected; 30s by default, 20m with FENCELOCK_SLOW")

// Nemesis says what is disturbed.
type Nemesis struct {
	TTL time.Duration // of the locks

	// Place returns where the worker with a number finds the store, as ServeWorker passes it on. through
	// returns the address of a new proxy of this worker for the server at addr.
	Place func(worker int, through func(addr string) string) string

	// Disturb injects a fault of the servers, which note records, and ends it.
	Disturb func(note Note)
	Rest    time.Duration // between two faults of the servers, at most

	Rules history.Rules
}

// A Note records that a fault has begun.
type Note func(what string, workers ...string) (end func())

// Lull is how long a fault lasts.
func Lull() { time.Sleep(200*time.Millisecond + rand.N(6*time.Second)) }

// run is a Nemesis that runs.
type run struct {
	testing.TB
	Nemesis
	*chaostest.Run
	lanes   map[string]*lane
	workers []string // the keys of lanes
}

// lane is a worker, whose process is replaced when it is killed, and its proxies.
type lane struct {
	place   string
	proxies []*chaostest.Proxy
	process *chaostest.Process
}

// Run injects faults until its time is over, and fails the test if the workers observed what must not
// happen.
func (n Nemesis) Run(t *testing.T) {
	t.Helper()
	length := 30 * time.Second
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length = 20 * time.Minute
	}
	length = cmp.Or(*For, length)
	r := &run{TB: t, Nemesis: n, Run: chaostest.New(t), lanes: map[string]*lane{}, workers: []string{"a", "b", "c", "d"}}
	for i, worker := range r.workers {
		l := &lane{}
		l.place = n.Place(i, func(addr string) string {
			p := r.Proxy(addr)
			l.proxies = append(l.proxies, p)
			return p.Addr()
		})
		r.lanes[worker] = l
		r.begin(worker)
	}
	r.Await("acquisition of each worker", r.all)
	r.inject(length)
	before := r.Check(history.Rules{})
	r.Await("acquisition after the last fault", func(h *history.History) bool {
		return len(h.Acquisitions) > len(before.Acquisitions)
	})
	for _, l := range r.lanes {
		l.process.Kill()
	}
	r.report(r.Check(n.Rules))
}

// begin starts the process of a worker.
func (r *run) begin(worker string) {
	r.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	l, cmd := r.lanes[worker], exec.Command(exe)
	cmd.Env = append(os.Environ(), envWorker+"="+r.TTL.String()+" "+l.place)
	l.process = r.Start(worker, cmd)
}

// all reports whether each worker has acquired a lock.
func (r *run) all(h *history.History) bool {
	turns := h.Stats().Turns
	return !slices.ContainsFunc(r.workers, func(worker string) bool { return turns[worker] == 0 })
}

// inject injects faults of the servers and of the workers at the same time.
func (r *run) inject(length time.Duration) {
	var injecting sync.WaitGroup
	for _, of := range []struct {
		fault func()
		rest  time.Duration
	}{{func() { r.Disturb(r.Fault) }, r.Rest}, {r.onWorkers, time.Second}} {
		injecting.Go(func() { // ends after length
			for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(rand.N(of.rest)) {
				of.fault()
			}
		})
	}
	injecting.Wait()
}

// onWorkers injects a random fault of a worker or of its connections, and ends it.
func (r *run) onWorkers() {
	worker := r.workers[rand.N(len(r.workers))]
	l, direction := r.lanes[worker], []faults.Direction{chaostest.ToServer, chaostest.ToClient, chaostest.Both}[rand.N(3)]
	during := func(what string, begin func(*chaostest.Proxy)) {
		defer r.Fault(what, worker)()
		for _, p := range l.proxies {
			begin(p)
		}
		Lull()
		for _, p := range l.proxies {
			if err := p.Heal(); err != nil {
				r.Error(err)
			}
		}
	}
	switch rand.N(7) {
	case 0:
		during("cut", func(p *chaostest.Proxy) { p.Drop(direction) })
	case 1:
		during("stall", func(p *chaostest.Proxy) { p.Stall(direction) })
	case 2:
		late := rand.N(r.TTL)
		during("delay", func(p *chaostest.Proxy) { p.Delay(direction, late) })
	case 3:
		during("refuse", func(p *chaostest.Proxy) { p.Refuse(); p.Reset() })
	case 4:
		end := r.Fault("reset", worker)
		for _, p := range l.proxies {
			p.Reset()
		}
		end()
	case 5:
		l.process.Freeze()
		Lull()
		l.process.Thaw()
	case 6:
		l.process.Kill()
		r.begin(worker)
	}
}

// report logs the losses and the figures.
func (r *run) report(h *history.History) {
	r.Helper()
	for _, l := range h.Losses() {
		if l.Next != nil {
			r.Logf("%v: lost at %v, deadline %v, next %v: margin %v: %s", l.Acquisition, l.Lost, l.Deadline, l.Next.Returned, l.Margin(), l.Cause)
		}
	}
	s, counts := h.Stats(), map[string]int{}
	for _, f := range h.Faults {
		counts[f.What]++
	}
	r.Logf("%d holds, %d faults: %v; %d losses", len(h.Acquisitions), len(h.Faults), counts, len(h.Losses()))
	r.Logf("turns %v, waits p50 %v, p99 %v, longest without a holder %+v", s.Turns, s.WaitP50, s.WaitP99, s.Closed)
	r.Logf("the least time from a deadline to the next grant: %+v", s.Margin)
	if len(h.Undecided) > 0 {
		r.Logf("too many acquisitions to search for an order: %q", h.Undecided)
	}
}
