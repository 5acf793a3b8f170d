//go:build unix

package stores_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/chaostest/record"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/retry"
)

var nemesisFor = flag.Duration("nemesis.for", 0, "how long the nemesis runs on each store; 20s by default, 20m with FENCELOCK_SLOW")

// envWorker is set in the environment of a child that takes locks: the kind of the store and where
// it is.
const envWorker = "FENCELOCK_WORKER"

// serveWorker takes locks until it is killed, if the environment says so.
func serveWorker() {
	text := os.Getenv(envWorker)
	if text == "" {
		return
	}
	var kind, where string
	writer, err := history.FromEnv()
	if _, scan := fmt.Sscanf(text, "%q %q", &kind, &where); err != nil || scan != nil {
		fmt.Fprintln(os.Stderr, "worker:", err, scan)
		os.Exit(1)
	}
	locks := fencelock.New(openLocks[kind](where), &fencelock.Config{Tracer: record.Tracer(writer)})
	go work(locks, func() string { return "long" }, 3*time.Second) // all end with the process
	for range 3 {
		go work(locks, func() string { return fmt.Sprint("job-", rand.N(2)) }, 5*time.Millisecond)
	}
	select {}
}

// work holds locks for less than most. It waits for most of them.
func work(locks *fencelock.Locker, name func() string, most time.Duration) {
	locks = locks.WithOnly(fencelock.Options{TTL: 2 * time.Second, Wait: 15 * time.Second})
	hold := func(ctx context.Context) error {
		retry.Sleep(ctx, rand.N(most))
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

// nemesis is a cluster of three members, with workers each of whose connections pass proxies of its
// own.
type nemesis struct {
	*testing.T
	store   store
	cluster *cluster
	run     *chaostest.Run
	part    string
	proxies map[string][]*chaostest.Proxy
	workers map[string]*chaostest.Process
}

// TestNemesis kills and freezes members and workers, moves the leader and cuts connections while the
// workers take locks.
func TestNemesis(t *testing.T) {
	length := 20 * time.Second
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length = 20 * time.Minute
	}
	length = cmp.Or(*nemesisFor, length)
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			n := &nemesis{T: t, store: s, cluster: s.start(t, 3), run: chaostest.New(t), part: partOf(t)}
			n.proxies, n.workers = map[string][]*chaostest.Proxy{}, map[string]*chaostest.Process{}
			s.open(t, n.cluster, n.part)
			for _, worker := range []string{"a", "b", "c", "d"} {
				for _, addr := range n.cluster.addrs() {
					n.proxies[worker] = append(n.proxies[worker], n.run.Proxy(addr))
				}
				n.start(worker)
			}
			n.run.Await("acquisition", func(h *history.History) bool { return len(h.Acquisitions) > 0 })
			var injecting sync.WaitGroup
			for _, inject := range []func(){n.onMembers, n.onWorkers} {
				injecting.Go(func() { // ends after length
					for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(rand.N(time.Second)) {
						inject()
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
			h := n.run.Check(history.Rules{Search: time.Minute})
			for _, l := range h.Losses() {
				if l.Next != nil {
					t.Logf("%v: lost at %v, deadline %v, next %v: margin %v: %s", l.Acquisition, l.Lost, l.Deadline, l.Next.Returned, l.Margin(), l.Cause)
				}
			}
			s := h.Stats()
			t.Logf("the least time from a deadline to the next grant: %+v", s.Margin)
			if len(h.Undecided) > 0 {
				t.Logf("too many acquisitions to search for an order: %q", h.Undecided)
			}
		})
	}
}

// start starts a worker.
func (n *nemesis) start(worker string) {
	n.Helper()
	exe, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	addrs := ""
	for _, p := range n.proxies[worker] {
		addrs += "," + p.Addr()
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envWorker+"="+fmt.Sprintf("%q %q", n.store.kind, addrs[1:]+" "+n.part))
	n.workers[worker] = n.run.Start(worker, cmd)
}

func pause() { time.Sleep(200*time.Millisecond + rand.N(5*time.Second)) }

// note records a fault, if there is a history.
func (n *nemesis) note(what string) (end func()) {
	if n.run == nil {
		return func() {}
	}
	return n.run.Fault(what)
}

// onMembers injects a random fault, and ends it.
func (n *nemesis) onMembers() {
	m := n.cluster.members[rand.N(len(n.cluster.members))]
	switch rand.N(3) {
	case 0:
		end := n.note("kill " + m.Name)
		m.kill()
		pause()
		n.cluster.start(n, m)
		end()
	case 1:
		end := n.note("freeze " + m.Name)
		m.freeze(n)
		pause()
		m.thaw(n)
		end()
	case 2:
		end := n.note("move the leader")
		n.moveLeader()
		end()
	}
}

// onWorkers injects a random fault, and ends it.
func (n *nemesis) onWorkers() {
	worker := []string{"a", "b", "c", "d"}[rand.N(4)]
	switch rand.N(4) {
	case 0:
		end := n.run.Fault("cut", worker)
		lost := []faults.Direction{chaostest.ToServer, chaostest.ToClient, chaostest.Both}[rand.N(3)]
		for _, p := range n.proxies[worker] {
			p.Drop(lost)
		}
		pause()
		for _, p := range n.proxies[worker] {
			if err := p.Heal(); err != nil {
				n.Error(err)
			}
		}
		end()
	case 1:
		for _, p := range n.proxies[worker] {
			p.Reset()
		}
	case 2:
		n.workers[worker].Freeze()
		pause()
		n.workers[worker].Thaw()
	case 3:
		n.workers[worker].Kill()
		n.start(worker)
	}
}

// moveLeader makes another member the leader. It may fail, as during an election.
func (n *nemesis) moveLeader() {
	ctx, cancel := context.WithTimeout(n.Context(), time.Second)
	defer cancel()
	if n.store.kind == "nats" {
		js := jetStream(n, n.cluster.addrs())
		_, _ = js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bucket(n.part), nil)
		js.Conn().Close()
		return
	}
	for _, m := range n.cluster.members {
		client, err := dialEtcd([]string{m.addr()})
		if err != nil {
			n.Fatal(err)
		}
		status, err := client.Status(ctx, m.addr())
		if err == nil && status.Leader == status.Header.MemberId {
			members, err := client.MemberList(ctx)
			for i := range 3 {
				if err == nil && members.Members[i].ID != status.Leader {
					_, _ = client.MoveLeader(ctx, members.Members[i].ID)
					break
				}
			}
		}
		_ = client.Close()
	}
}
