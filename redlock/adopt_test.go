package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

func adopt(e *redlock.Engine, l driver.Lease) (driver.Grant, error) {
	return e.Adopt(context.Background(), l, driver.Request{Name: l.Name, Mode: l.Mode, TTL: l.TTL})
}

func renew(e *redlock.Engine, l driver.Lease) error {
	return e.Renew(context.Background(), []driver.Lease{l})[0]
}

// TestAdoptByAnotherProcess: the engine of each holder is in a process of its own.
func TestAdoptByAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := examtest.PassOn(t, w, true)
	verdict.Is(t, "Redlock: the holder detaches its lock, and another process adopts it", verdict.Safe, verdict.OfHolders(p.State, p.Earlier, p.Later))
	p = examtest.PassOn(t, w, false)
	verdict.Is(t, "Redlock: another process adopts a lock that its holder has not detached", verdict.Guarded, verdict.OfHolders(p.State, p.Earlier, p.Later))
}

// TestAdoptWithANodeDown: two of three nodes are a majority. The third one has the old holder's lock
// until its lease ends there, and the adopter's renewals replace it.
func TestAdoptWithANodeDown(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3, "--appendonly", "yes")
	first, next := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	warmUp(t, next)
	l := takeOn(t, first, w[:2])
	w[2].Kill(t)
	g, err := adopt(next, l)
	if err != nil || g.Token <= l.Token {
		t.Fatalf("token %d after %d, %v", g.Token, l.Token, err)
	}
	if err := renew(first, l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the first holder renews: %v", err)
	}
	if err := renew(next, leaseOf("x", g, long)); err != nil {
		t.Error(err)
	}
	release(t, next, leaseOf("x", g, long))
}

// takeOn acquires the lock x, and waits until each of some nodes has it.
func takeOn(t *testing.T, e *redlock.Engine, nodes world) driver.Lease {
	t.Helper()
	_, l := take(t, e, "x", long)
	for _, r := range nodes {
		eventually(t, "the lock on the node", func() bool { return strings.Contains(r.Do(t, "GET", "lock:x"), l.Owner) })
	}
	return l
}

// deaf is an engine whose requests of a kind reach only the nodes that reaches allows.
func deaf(t *testing.T, w world, kind string, cfg redlock.Config, reaches func(i int) bool) *redlock.Engine {
	t.Helper()
	return openThrough(t, w.addrs(), cfg, func(i int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			if redlock.Kind(c.Script) == kind && c.Keys[0] == "lock:x" && !reaches(i) {
				return redisconn.Failures(1, errors.New("lost"))
			}
			return do()
		}}
	})
}

// TestAdoptByAMinority: an adoption that reaches one of three nodes fails. The holder keeps its lock
// on the other two.
func TestAdoptByAMinority(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	first := open(t, w.addrs(), redlock.Config{})
	l := takeOn(t, first, w)
	late := deaf(t, w, "ask", redlock.Config{RetryTimeout: time.Nanosecond}, func(i int) bool { return i == 0 })
	warmUp(t, late)
	if _, err := adopt(late, l); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("with one of three nodes: %v, want ErrUnavailable", err)
	}
	for range 3 {
		if err := renew(first, l); err != nil {
			t.Errorf("the holder after a failed adoption: %v", err)
		}
	}
	if _, err := try(open(t, w.addrs(), redlock.Config{}), "x", long); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("another client after a failed adoption: %v, want ErrHeld", err)
	}
	release(t, first, l)
}

// TestAdoptThatArrivesLate: two of three nodes get an adoption that its client has given up. The
// holder keeps its lock there.
func TestAdoptThatArrivesLate(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a request arrives after its client gave up", verdict.Safe)
	w := startNodes(t, 3)
	first := open(t, w.addrs(), redlock.Config{})
	l := takeOn(t, first, w)
	proxies, addrs := behind(t, w)
	e := open(t, addrs, redlock.Config{Nodes: w.addrs(), RetryTimeout: time.Nanosecond})
	warmUp(t, e)
	held := delay(t, proxies[:2], (*faults.Proxy).HoldNext)
	failed := make(chan error, 1)
	go func() { // ends with the adoption
		_, err := adopt(e, l)
		failed <- err
	}()
	for _, h := range held {
		<-h.Caught()
		h.ResetClients()
	}
	if err := <-failed; !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("with two of three nodes reset: got %v, want ErrUnavailable", err)
	}
	for _, r := range w[:2] {
		eventually(t, "a bar", func() bool { return r.Do(t, "KEYS", "fence:{lock:x}/*") != "" })
	}
	for _, h := range held {
		h.Deliver()
		<-h.Answered()
	}
	if err := renew(first, l); err != nil {
		t.Errorf("the holder after an adoption that arrived late: %v", err)
	}
	for _, r := range w[:2] {
		if text := r.Do(t, "GET", "lock:x"); !strings.Contains(text, l.Owner) {
			t.Errorf("%s has %q", r.Addr(), text)
		}
	}
}

// TestAdoptOverBadNetworks: one or two clients adopt a lock while requests and answers are lost. At
// most one gets it. Then the first holder cannot renew, and the adopter can. If none gets it, the first
// holder keeps it or it becomes free, even after a renewal: a request of an adopter may arrive late.
func TestAdoptOverBadNetworks(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	first := open(t, w.addrs(), redlock.Config{})
	var bad atomic.Bool
	lossy := func(_ int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(_ redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			lost := redisconn.Failures(1, errors.New("lost"))
			switch {
			case bad.Load() && rand.IntN(5) == 0:
				return lost
			case bad.Load() && rand.IntN(5) == 0:
				do()
				return lost
			}
			return do()
		}}
	}
	cfg := redlock.Config{RetryTimeout: time.Nanosecond}
	adopters := []*redlock.Engine{openThrough(t, w.addrs(), cfg, lossy), openThrough(t, w.addrs(), cfg, lossy)}
	for _, e := range adopters {
		warmUp(t, e)
	}
	passed, kept := 0, 0
	for range 60 {
		_, l := retryAcquire(t, first, "x", long)
		bad.Store(true)
		var mu sync.Mutex // guards got
		var got []func() error
		var both sync.WaitGroup
		for _, e := range adopters[rand.IntN(2):] {
			both.Go(func() { // ends with its RetryTimeout
				g, err := adopt(e, l)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && g.Token <= l.Token:
					t.Errorf("token %d after %d", g.Token, l.Token)
				case err == nil:
					got = append(got, func() error {
						one := leaseOf("x", g, long)
						return errors.Join(renew(e, one), e.Release(context.Background(), one))
					})
				case !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotHeld):
					t.Error(err)
				}
			})
		}
		both.Wait()
		bad.Store(false)
		err := renew(first, l)
		switch {
		case len(got) > 1, len(got) == 1 && err == nil:
			t.Fatalf("%d adopted, and the first holder renews: %v", len(got), err)
		case len(got) == 1:
			passed++
			eventually(t, "the adopter renews and releases", func() bool {
				err := got[0]()
				return err == nil || errors.Is(err, driver.ErrNotHeld)
			})
		case err == nil:
			kept++
			if err := first.Release(context.Background(), l); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
		}
	}
	t.Logf("60 locks: %d passed on, %d kept", passed, kept)
	if passed == 0 || kept == 0 {
		t.Error("the network was too good or too bad")
	}
}
