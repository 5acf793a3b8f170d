package kube

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/chaostest/record"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/freeze"
)

var nemesisFor = flag.Duration("nemesis.for", 0, "how long the nemesis runs; 30s by default, 20m with FENCELOCK_SLOW")

// nemesisTTL is that of the locks. The API server's clock has whole seconds.
const nemesisTTL = 3 * time.Second

// runWorker takes locks until it is killed.
func runWorker(where string) {
	writer, err := history.FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	locks := fencelock.New(open(where), &fencelock.Config{Tracer: record.Tracer(writer)})
	go work(locks, func() string { return "long" }, 2*nemesisTTL) // all end with the process
	for range 3 {
		go work(locks, func() string { return fmt.Sprint("job-", rand.N(2)) }, 5*time.Millisecond)
	}
	select {}
}

// work holds locks for less than most. It waits for most of them.
func work(locks *fencelock.Locker, name func() string, most time.Duration) {
	locks = locks.WithOnly(fencelock.Options{TTL: nemesisTTL, Wait: 15 * time.Second})
	hold := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(most)):
		}
		return nil
	}
	for {
		do := locks.Do
		if rand.N(4) == 0 {
			do = locks.TryDo
		}
		_ = do(context.Background(), name(), hold) // the tracer records errors
		time.Sleep(rand.N(3 * time.Millisecond))
	}
}

// nemesis is two API servers on one etcd. Half of the workers use each, through proxies of their own.
type nemesis struct {
	*testing.T
	run     *chaostest.Run
	servers []*server
	places  map[string]string // of the workers
	proxies map[string]*chaostest.Proxy
	workers map[string]*chaostest.Process
}

var lanes = []string{"a", "b", "c", "d"}

// TestNemesis kills and freezes API servers, their etcd and workers, and disturbs connections, while
// the workers take locks.
func TestNemesis(t *testing.T) {
	length := 30 * time.Second
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length = 20 * time.Minute
	}
	length = cmp.Or(*nemesisFor, length)
	first := start(t)
	n := &nemesis{T: t, run: chaostest.New(t), servers: []*server{first, first.beside(t)}}
	n.places, n.proxies, n.workers = map[string]string{}, map[string]*chaostest.Proxy{}, map[string]*chaostest.Process{}
	namespace := first.namespace(t)
	for i, worker := range lanes {
		s := n.servers[i%2]
		n.proxies[worker] = n.run.Proxy(strings.TrimPrefix(s.url, "https://"))
		n.places[worker] = "https://" + n.proxies[worker].Addr() + " " + s.ca() + " " + namespace
		n.start(worker)
	}
	n.run.Await("acquisition of each worker", func(h *history.History) bool { return all(h) })
	var injecting sync.WaitGroup
	for _, inject := range []struct {
		fault func()
		rest  time.Duration // at most, before the next one
	}{{func() { disturb(n, n.servers, n.run.Fault) }, 6 * time.Second}, {n.onWorkers, time.Second}} {
		injecting.Go(func() { // ends after length
			for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(rand.N(inject.rest)) {
				inject.fault()
			}
		})
	}
	injecting.Wait()
	before := n.run.Check(history.Rules{})
	n.run.Await("acquisition after the last fault", func(h *history.History) bool {
		return len(h.Acquisitions) > len(before.Acquisitions)
	})
	for _, w := range n.workers {
		w.Kill()
	}
	n.report(n.run.Check(history.Rules{Search: time.Minute, Closed: 30 * time.Second, Recovery: 15 * time.Second}))
}

// all reports whether each worker has acquired a lock.
func all(h *history.History) bool {
	turns := h.Stats().Turns
	for _, worker := range lanes {
		if turns[worker] == 0 {
			return false
		}
	}
	return true
}

// report logs the losses and the figures.
func (n *nemesis) report(h *history.History) {
	for _, l := range h.Losses() {
		if l.Next != nil {
			n.Logf("%v: lost at %v, deadline %v, next %v: margin %v: %s", l.Acquisition, l.Lost, l.Deadline, l.Next.Returned, l.Margin(), l.Cause)
		}
	}
	s := h.Stats()
	n.Logf("turns %v, waits p50 %v, p99 %v, longest without a holder %+v", s.Turns, s.WaitP50, s.WaitP99, s.Closed)
	n.Logf("the least time from a deadline to the next grant: %+v", s.Margin)
	counts := map[string]int{}
	for _, f := range h.Faults {
		counts[f.What]++
	}
	n.Logf("faults %v", counts)
	if len(h.Undecided) > 0 {
		n.Logf("too many acquisitions to search for an order: %q", h.Undecided)
	}
}

// start starts a worker.
func (n *nemesis) start(worker string) {
	n.Helper()
	exe, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	n.workers[worker] = n.run.Start(worker, exec.Command(exe, "worker", n.places[worker]))
}

// lull is how long a fault lasts.
func lull() { time.Sleep(200*time.Millisecond + rand.N(6*time.Second)) }

// disturb injects a random fault of an API server or of etcd, and ends it. note records it.
func disturb(t testing.TB, servers []*server, note func(what string, workers ...string) (end func())) {
	s := servers[rand.N(len(servers))]
	switch rand.N(5) {
	case 0:
		defer note("kill an API server")()
		kill(s.api)
		lull()
		s.startAPI(t)
	case 1:
		defer note("freeze an API server")()
		freezeFor(t, s.api)
	case 2:
		defer note("freeze all API servers")() // as if etcd had no majority
		for _, s := range servers {
			_ = s.api.Process.Signal(syscall.SIGSTOP)
		}
		freezeFor(t, s.api)
		for _, s := range servers {
			_ = s.api.Process.Signal(syscall.SIGCONT)
		}
	case 3:
		defer note("freeze etcd")()
		freezeFor(t, s.etcd.cmd)
	case 4:
		defer note("kill etcd")()
		kill(s.etcd.cmd)
		lull()
		s.startEtcd(t)
	}
}

// freezeFor stops a server for a while.
func freezeFor(t testing.TB, cmd *exec.Cmd) {
	if err := freeze.Process(cmd.Process); err != nil {
		t.Error(err)
	}
	lull()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}

// onWorkers injects a random fault of a worker or of its connections, and ends it.
func (n *nemesis) onWorkers() {
	worker := lanes[rand.N(len(lanes))]
	proxy := n.proxies[worker]
	direction := []faults.Direction{chaostest.ToServer, chaostest.ToClient, chaostest.Both}[rand.N(3)]
	during := func(what string, begin func()) {
		defer n.run.Fault(what, worker)()
		begin()
		lull()
		if err := proxy.Heal(); err != nil {
			n.Error(err)
		}
	}
	switch rand.N(7) {
	case 0:
		during("cut", func() { proxy.Drop(direction) })
	case 1:
		during("stall", func() { proxy.Stall(direction) })
	case 2:
		during("delay", func() { proxy.Delay(direction, rand.N(nemesisTTL)) })
	case 3:
		during("refuse", func() { proxy.Refuse(); proxy.Reset() })
	case 4:
		end := n.run.Fault("reset", worker)
		proxy.Reset()
		end()
	case 5:
		n.workers[worker].Freeze()
		lull()
		n.workers[worker].Thaw()
	case 6:
		n.workers[worker].Kill()
		n.start(worker)
	}
}
