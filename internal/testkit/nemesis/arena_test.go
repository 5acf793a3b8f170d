//go:build linux

package nemesis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
)

// workers is how many processes share the locks.
const workers = 5

// An arena is the servers of one engine, and the way to them for each worker.
type arena struct {
	t       *testing.T
	kind    string
	planted string // what is wrong with the engine
	hunting bool   // something is wrong, so what is left behind does not matter
	orderly bool   // every round ends in order, and what is left behind does
	servers servers
	ways    [workers][]*faults.Proxy // one for each server
	ahead   time.Duration            // how far the clock of the last server is

	last map[string]history.Acquisition // the greatest tokens of earlier rounds
}

func newArena(t *testing.T, name string) *arena {
	t.Helper()
	a := &arena{t: t, kind: name, servers: kinds[name].start(t), last: map[string]history.Acquisition{}}
	if a.servers.known == nil {
		a.servers.known = a.servers.addrs
	}
	for i := range a.ways {
		for _, addr := range a.servers.addrs {
			p, err := faults.NewProxy(addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			a.ways[i] = append(a.ways[i], p)
		}
	}
	return a
}

// known is how worker i finds the servers.
func (a *arena) known(i int) known {
	k := known{Addrs: a.servers.known, Ways: map[string]string{}}
	for j, p := range a.ways[i] {
		k.Ways[k.Addrs[j]] = p.Addr()
	}
	return k
}

// A round is one plan, carried out.
type round struct {
	*arena
	dir    string
	seed   uint64
	origin time.Duration
	crew   [workers]*exec.Cmd
	births uint64
	paused map[int]int // servers that stand still, by how many faults
	moving func()      // ends the move of a slot; nil if there is none
	done   []fault

	lateUntil time.Duration // when all that is under way has been delivered
}

// round carries out the plan of a seed and judges what came of it.
func (a *arena) round(seed uint64, mix []string, length time.Duration) *outcome {
	a.t.Helper()
	runtime.LockOSThread() // the kernel kills the workers when the thread that made them ends
	defer runtime.UnlockOSThread()
	dir, err := os.MkdirTemp("", "fencelock-nemesis-")
	if err != nil {
		a.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r := &round{arena: a, dir: dir, seed: seed, origin: now(), paused: map[int]int{}}
	for i := range workers {
		r.launch(i)
	}
	defer r.killAll()
	r.awaitWorkers()
	r.origin = now()
	random := rand.New(rand.NewPCG(seed, 0))
	var steps []step
	for _, f := range plan(random, mix, workers, len(a.servers.addrs), length, a.tempo()) {
		steps = append(steps, r.steps(f)...)
	}
	steps = append(steps, r.tending(length)...)
	for _, s := range inOrder(append(steps, step{at: length, do: func() {}})) {
		time.Sleep(r.origin + s.at - now())
		s.do()
	}
	time.Sleep(r.lateUntil - now())
	if a.servers.settle != nil {
		a.servers.settle()
	}
	o := &outcome{kind: a.kind, seed: seed, length: length, faults: r.done}
	o.calm = a.orderly || !a.hunting && seed%2 == 0
	if o.calm {
		r.endInOrder()
	} else {
		r.killAll()
	}
	if !a.hunting || a.orderly {
		left := ttl + kinds[a.kind].extra + time.Second // of locks whose holders have died
		if o.calm {
			left = minimum + ttl/4
		}
		o.free, o.bound = r.awaitFree(left)
	}
	r.judge(o)
	return o
}

// awaitWorkers returns when each worker has had a lock: on a busy machine some start so
// late that all of the faults would be over.
func (r *round) awaitWorkers() {
	r.t.Helper()
	for end := now() + time.Minute; ; time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(r.dir, "*")) // the pattern is fine
		idle := workers
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("believed ")) {
				idle--
			}
		}
		if idle == 0 {
			return
		}
		if now() > end {
			r.t.Fatalf("seed %d: %d of %d workers had no lock in a minute without a fault", r.seed, idle, workers)
		}
	}
}

// tempo is that of storms of faults, or where something is to be found, that of faults
// each of which shows what it does: others must get the lock that one has lost.
func (a *arena) tempo() tempo {
	if a.hunting {
		return tempo{gap: ttl, rest: 2 * ttl}
	}
	return tempo{gap: ttl / 5, rest: max(kinds[a.kind].rest, ttl/2)}
}

// launch starts a worker. It ends with the round.
func (r *round) launch(i int) {
	r.t.Helper()
	r.births++
	name := fmt.Sprintf("w%d-%d", i, r.births)
	j, err := json.Marshal(job{
		Kind: r.kind, Known: r.known(i), Name: name, Seed: r.seed<<16 + r.births,
		Diary: filepath.Join(r.dir, name), Planted: r.planted,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envJob+"="+string(j))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.crew[i] = cmd
}

// killAll ends all workers in the middle of what they do.
func (r *round) killAll() {
	for i := range workers {
		_ = r.crew[i].Process.Kill()
	}
	for i := range workers {
		r.kill(i)
	}
}

// endInOrder lets the workers go on without a fault until whatever the faults left behind
// must be over, and has them end in order then: they leave nothing behind.
func (r *round) endInOrder() {
	r.t.Helper()
	time.Sleep(2*ttl + kinds[r.kind].extra)
	for i := range workers {
		_ = r.crew[i].Process.Signal(syscall.SIGTERM)
	}
	for i := range workers {
		r.awaitEnd(i)
	}
}

// awaitEnd returns when a worker has ended by itself.
func (r *round) awaitEnd(i int) {
	r.t.Helper()
	cmd := r.crew[i]
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			r.t.Errorf("seed %d: worker %d has not ended in order: %v", r.seed, i, err)
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Signal(syscall.SIGABRT) // it prints what it is doing
		<-ended
		r.t.Errorf("seed %d: worker %d has not ended in 30 s", r.seed, i)
	}
}

// kill ends a worker as kill -9 does. One that has ended by itself is a failure.
func (r *round) kill(i int) {
	r.t.Helper()
	cmd := r.crew[i]
	if cmd.ProcessState != nil {
		return // it was killed before
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signal() != syscall.SIGKILL {
		r.t.Errorf("seed %d: worker %d has ended by itself: %v", r.seed, i, cmd.ProcessState)
	}
}

// awaitFree returns how long it takes until every name can be had by somebody
// new, and how long it may take: what is left of locks, and what this machine is
// late, which is no fault of the engine.
func (r *round) awaitFree(left time.Duration) (took, bound time.Duration) {
	r.t.Helper()
	dead := now()
	engine, err := kinds[r.kind].open(known{Addrs: r.servers.known})
	if err != nil {
		r.t.Fatal(err)
	}
	if c, ok := engine.(interface{ Close() error }); ok {
		defer c.Close()
	}
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	late, stop := lateness(ctx)
	var last atomic.Int64
	var all sync.WaitGroup
	for _, name := range names() {
		all.Go(func() {
			lock, err := locks.Acquire(ctx, name)
			if err != nil {
				r.t.Errorf("seed %d: %s is not free: %v", r.seed, name, err)
				return
			}
			for got := int64(now() - dead); ; {
				if old := last.Load(); got <= old || last.CompareAndSwap(old, got) {
					break
				}
			}
			if err := lock.Release(); err != nil {
				r.t.Logf("seed %d: %v", r.seed, err) // the machine was late
			}
		})
	}
	all.Wait()
	r.awaitNothing(ctx, engine.(driver.Lister))
	stop()
	return time.Duration(last.Load()), left + 2*late()
}

// awaitNothing waits until nobody is listed any more.
func (r *round) awaitNothing(ctx context.Context, locks driver.Lister) {
	r.t.Helper()
	for {
		left, err := locks.List(ctx, driver.Query{Scan: true})
		left = slices.DeleteFunc(left, func(s fencelock.Status) bool { return len(s.Holders)+len(s.Waiters) == 0 })
		switch {
		case err != nil:
			r.t.Errorf("seed %d: list: %v; left: %v", r.seed, err, left)
			return
		case len(left) == 0:
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lateness measures how late this machine wakes a goroutine and runs a process, as a server's
// is, until stop is called.
func lateness(ctx context.Context) (late func() time.Duration, stop func()) {
	ctx, stop = context.WithCancel(ctx)
	var worst atomic.Int64
	go func() { // ends with ctx
		const nap = 5 * time.Millisecond
		for ctx.Err() == nil {
			slept := now()
			time.Sleep(nap)
			_ = exec.CommandContext(ctx, "true").Run() // one that failed took its time as well
			worst.Store(max(worst.Load(), int64(now()-slept-nap)))
		}
	}()
	return func() time.Duration { return time.Duration(worst.Load()) }, stop
}

// stepped reports whether the wall clock of a server was stepped, which ends minimum
// holds early or late, as the engines' pages say.
func (r *round) stepped() bool {
	return r.ahead != 0 || slices.ContainsFunc(r.done, func(f fault) bool { return f.what == clock || f.what == back })
}

// judge reads what the workers have written.
func (r *round) judge(o *outcome) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*"))
	h := records{grants: map[string]*history.Acquisition{}, counts: map[string]int{}}
	for _, file := range files {
		if err == nil {
			err = h.read(file)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	all := h.believed(r.origin)
	o.holds, o.wrong, o.counts = len(all), h.wrong, h.counts
	for _, g := range r.last {
		g.Called, g.Returned, g.Until = g.Called-r.origin, g.Returned-r.origin, g.Until-r.origin
		all = append(all, g)
	}
	found := history.History{Acquisitions: all}
	found.Judge(history.Rules{TwoHolders: kinds[r.kind].overlaps, IgnoreMinHolds: r.stepped()})
	o.violations, o.overlaps, o.believed = found.Violations, len(found.Expected), all
	for _, g := range all {
		if g.Token > r.last[g.Name].Token {
			g.Called, g.Returned, g.Until = g.Called+r.origin, g.Returned+r.origin, g.Until+r.origin
			r.last[g.Name] = g
		}
	}
}
