package kube

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	object = "one-lease"
	ttl    = 4 * time.Second

	// A candidate of client-go counts its lease from the answer to a request, which may be late by its
	// time limit.
	renewDeadline = 1500 * time.Millisecond
	requestLimit  = renewDeadline / 2
)

// candidates are programs of tests. Each takes locks again and again. Those of TestTurns print when it
// has it and when it has not.
var candidates = map[string]func(where string){"client-go": runClientGo, "fencelock": runFencelock}

// says prints what has happened, with the time and the token, if there is one.
func says(what string, token int64) { fmt.Println(what, time.Now().UnixNano(), token) }

// hold is a turn. Some take longer than the lease, so that it is renewed.
func hold(ctx context.Context) {
	d := rand.N(20 * time.Millisecond)
	if rand.IntN(20) == 0 {
		d += ttl + rand.N(ttl)
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pause lets others take the lock.
func pause() { time.Sleep(rand.N(600 * time.Millisecond)) }

func runFencelock(where string) {
	locks := fencelock.New(open(where), nil)
	for {
		lock, err := locks.With(fencelock.Options{TTL: ttl}).Acquire(context.Background(), object)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		says("has", lock.Token())
		hold(lock.Context())
		says("ends", 0)
		_ = lock.Release() // it may be lost
		pause()
	}
}

func runClientGo(where string) {
	parts := strings.Fields(where)
	client := kubernetes.NewForConfigOrDie(&rest.Config{
		Host: parts[0], BearerToken: locksToken, TLSClientConfig: rest.TLSClientConfig{CAFile: parts[1]}, QPS: -1,
		Timeout: requestLimit,
	})
	for {
		ctx, cancel := context.WithCancel(context.Background())
		config := electionConfig(client, parts[2], object, "client-go-"+strconv.Itoa(os.Getpid()))
		config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = ttl, renewDeadline, 100*time.Millisecond
		config.Callbacks = leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				says("has", 0)
				hold(ctx)
				says("ends", 0)
				cancel()
			},
			OnStoppedLeading: func() {},
		}
		leaderelection.RunOrDie(ctx, config)
		cancel()
		pause()
	}
}

// electionConfig returns the settings of a leader election on a Lease object, without its periods.
func electionConfig(client *kubernetes.Clientset, namespace, name, identity string) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: meta.ObjectMeta{Namespace: namespace, Name: name}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		ReleaseOnCancel: true,
	}
}

// turn is a time in which a process held the lock, by the clock of all processes of this host.
type turn struct {
	kind       string
	start, end int64
	token      int64
}

// table collects the turns of all processes.
type table struct {
	healed chan struct{} // closed when the last fault is over

	mu     sync.Mutex // guards the fields below
	turns  []turn
	kills  int
	faults map[string]int
}

// note counts a fault of a server.
func (tab *table) note(what string, _ ...string) (end func()) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.faults[what]++
	return func() {}
}

// watch runs one candidate after the other until ctx ends, and kills each of them after a while.
func (tab *table) watch(ctx context.Context, kind, where string) error {
	for ctx.Err() == nil {
		if err := tab.one(ctx, kind, where); err != nil {
			return err
		}
	}
	return nil
}

// one runs a candidate until it is killed. What it held then ends when it is dead.
func (tab *table) one(ctx context.Context, kind, where string) error {
	life, cancel := context.WithTimeout(ctx, 2*time.Second+rand.N(20*time.Second))
	defer cancel()
	cmd := exec.CommandContext(life, os.Args[0], kind, where)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	held := turn{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what string
		var at, token int64
		if _, err := fmt.Sscan(lines.Text(), &what, &at, &token); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if what == "has" {
			held = turn{kind: kind, start: at, token: token}
			continue
		}
		held.end = at
		tab.add(held)
		held = turn{}
	}
	_ = cmd.Wait() // its error is the kill
	if held.start != 0 {
		held.end = time.Now().UnixNano()
		tab.add(held)
		tab.mu.Lock()
		tab.kills++
		tab.mu.Unlock()
	}
	return nil
}

func (tab *table) add(held turn) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.turns = append(tab.turns, held)
}

func (tab *table) enough() bool {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return len(tab.turns) >= 500 && tab.kills >= 10 && len(tab.faults) >= 3
}

// TestTurns: fencelock and the leader election of client-go take turns on one Lease object, through
// two API servers, while their processes are killed, also while they hold it, and while the servers
// and etcd are killed and frozen. No two of them hold it at the same time.
func TestTurns(t *testing.T) {
	first := start(t)
	second, namespace := first.beside(t), first.namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	tab := &table{faults: map[string]int{}, healed: make(chan struct{})}
	errs := make(chan error, 4)
	go func() { // ends with ctx and the end of a fault
		defer close(tab.healed)
		for ctx.Err() == nil {
			disturb(t, []*server{first, second}, tab.note)
			retry.Sleep(ctx, rand.N(20*time.Second))
		}
	}()
	for _, s := range []*server{first, second} {
		for _, kind := range []string{"client-go", "fencelock"} {
			go func() { errs <- tab.watch(ctx, kind, s.place(namespace)) }() // ends with ctx
		}
	}
	for !tab.enough() && ctx.Err() == nil {
		time.Sleep(time.Second)
	}
	cancel()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	<-tab.healed
	if !tab.enough() {
		t.Errorf("the time is over after %d turns with %d kills", len(tab.turns), tab.kills)
	}
	tab.judge(t)
}

// judge fails the test if two turns overlap, or if a later token is not greater.
func (tab *table) judge(t *testing.T) {
	slices.SortFunc(tab.turns, func(a, b turn) int { return int(a.start - b.start) })
	counts, changes, token := map[string]int{}, 0, int64(0)
	for i, held := range tab.turns {
		counts[held.kind]++
		if i > 0 && held.start < tab.turns[i-1].end {
			t.Errorf("%+v overlaps %+v", held, tab.turns[i-1])
		}
		if i > 0 && held.kind != tab.turns[i-1].kind {
			changes++
		}
		if held.token > 0 && held.token <= token {
			t.Errorf("the token %d comes after %d", held.token, token)
		}
		token = max(token, held.token)
	}
	t.Logf("%v turns, %d changes between them, %d killed holders, faults %v", counts, changes, tab.kills, tab.faults)
	if min(counts["client-go"], counts["fencelock"]) < len(tab.turns)/10 {
		t.Errorf("the turns are uneven: %v", counts)
	}
}
