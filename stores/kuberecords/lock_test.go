//go:build unix

package kuberecords_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

// scene is a server in a bubble.
type scene struct {
	*testing.T
	server *kubetest.Server
}

// play runs a test in a bubble.
func play(t *testing.T, test func(s scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(scene{t, kubetest.New()}) })
}

// records returns the records of a new client.
func (s scene) records() *kuberecords.Records {
	s.Helper()
	records, err := kuberecords.New(&kuberecords.Config{Server: s.server.URL, Namespace: "shop", Client: s.server.Client()})
	if err != nil {
		s.Fatal(err)
	}
	return records
}

// locks returns the locks of a new client.
func (s scene) locks() *recordlock.Engine {
	s.Helper()
	e := recordlock.New(s.records(), nil)
	s.Cleanup(func() { _ = e.Close() })
	return e
}

const ttl = 10 * time.Second

// request is a request of a process on host "web".
func request(name string) driver.Request {
	return driver.Request{Name: name, TTL: ttl, Identity: driver.Identity{Host: "web", PID: 1}}
}

func waiting(name string) driver.Request {
	req := request(name)
	req.Wait = true
	return req
}

func leaseOf(name string, g driver.Grant) driver.Lease {
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: ttl}
}

// acquire makes a request that must be granted.
func (s scene) acquire(e *recordlock.Engine, req driver.Request) driver.Grant {
	s.Helper()
	g, err := e.Acquire(s.Context(), req)
	if err != nil {
		s.Fatalf("acquire %q: %v", req.Name, err)
	}
	return g
}

// held fails the test unless the lock is refused.
func (s scene) held(e *recordlock.Engine, name, when string) {
	s.Helper()
	if _, err := e.Acquire(s.Context(), request(name)); !errors.Is(err, driver.ErrHeld) {
		s.Fatalf("%s: got %v, want ErrHeld", when, err)
	}
}

// ok fails the test on an error.
func (s scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// spec returns the spec of an object.
func (s scene) spec(name string) map[string]any {
	s.Helper()
	spec, _ := s.server.Object("shop", name)["spec"].(map[string]any)
	return spec
}

// elected writes the spec that client-go writes for a leader; "" is a leader that has resigned.
func (s scene) elected(name, identity string, seconds int) {
	object := s.server.Object("shop", name)
	if object == nil {
		object = map[string]any{}
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	object["spec"] = map[string]any{"holderIdentity": identity, "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now, "leaseTransitions": 1}
	s.server.Put("shop", name, object)
}

// TestOthersHolder: a leader that client-go has elected holds the lock until it resigns, and is never
// written into the annotation.
func TestOthersHolder(t *testing.T) {
	play(t, func(s scene) {
		s.elected("leader", "pod-1", 15)
		locks := s.locks()
		if _, err := locks.Acquire(s.Context(), request("leader")); !errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "is held by pod-1 since") {
			s.Fatalf("while another program holds it: %v", err)
		}
		list, err := locks.List(s.Context(), driver.Query{})
		s.ok(err)
		if len(list) != 1 || len(list[0].Holders) != 1 || list[0].Holders[0].Host != "pod-1" || !list[0].Holders[0].Foreign {
			s.Errorf("the list is %+v", list)
		}
		done := make(chan driver.Grant)
		go func() { done <- s.acquire(locks, waiting("leader")) }() // ends when it is granted
		for range 20 {                                              // for longer than its lease
			time.Sleep(2 * time.Second)
			s.elected("leader", "pod-1", 15)
		}
		annotations := s.server.Object("shop", "leader")["metadata"].(map[string]any)["annotations"].(map[string]any)
		if value := annotations["fencelock.github.io/value"].(string); strings.Contains(value, "pod-1") || !strings.Contains(value, "waiters") {
			s.Errorf("the annotation is %s", value)
		}
		select {
		case <-done:
			s.Fatal("granted beside a leader that renews its lease")
		default:
		}
		begun := time.Now()
		s.elected("leader", "", 1)
		<-done
		if d := time.Since(begun); d > time.Second {
			s.Errorf("granted %v after the leader has resigned", d)
		}
		if holder := s.spec("leader")["holderIdentity"].(string); !strings.HasPrefix(holder, "web_") {
			s.Errorf("the holder in the spec is %q", holder)
		}
	})
}

// TestOthersDeath: the lease of a leader that is dead is over when it was unchanged for its duration
// since it was seen first.
func TestOthersDeath(t *testing.T) {
	play(t, func(s scene) {
		s.elected("leader", "pod-1", 15)
		time.Sleep(time.Hour)
		begun := time.Now()
		s.acquire(s.locks(), waiting("leader"))
		if d := time.Since(begun); d < 15*time.Second || d > 17*time.Second {
			s.Errorf("granted after %v, want 15s", d)
		}
	})
}

// TestTakenOver: if client-go has taken over, the holder loses the lock, also when the leader has
// resigned since.
func TestTakenOver(t *testing.T) {
	for _, next := range []string{"pod-1", ""} {
		play(t, func(s scene) {
			locks := s.locks()
			g := s.acquire(locks, request("leader"))
			s.elected("leader", "pod-1", 15)
			s.elected("leader", next, 15)
			if errs := locks.Renew(s.Context(), []driver.Lease{leaseOf("leader", g)}); !errors.Is(errs[0], driver.ErrNotHeld) {
				s.Errorf("a renewal after a leader %q: got %v, want ErrNotHeld", next, errs[0])
			}
			if holder := s.spec("leader")["holderIdentity"]; holder != next {
				s.Errorf("the holder in the spec is %q, want %q", holder, next)
			}
		})
	}
}

// TestSpec: the spec shows the holder as client-go understands it. It changes in whole seconds with
// each renewal, and only then: client-go counts the lease from there.
func TestSpec(t *testing.T) {
	play(t, func(s scene) {
		locks, other := s.locks(), s.locks()
		time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
		g := s.acquire(locks, request("leader"))
		first := s.spec("leader")
		if first["holderIdentity"] != "web_"+g.Owner || first["leaseDurationSeconds"] != 10.0 || first["leaseTransitions"] != 1.0 {
			s.Errorf("the spec is %v", first)
		}
		ctx, cancel := context.WithTimeout(s.Context(), 8*time.Second)
		defer cancel()
		_, _ = other.Acquire(ctx, waiting("leader")) // its context ends
		if now := s.spec("leader"); now["renewTime"] != first["renewTime"] {
			s.Errorf("a waiter has changed the spec from %v to %v", first, now)
		}
		last := first["renewTime"].(string)[:19]
		for range 20 { // each in the same second, and later ones by a clock that is behind
			s.ok(locks.Renew(s.Context(), []driver.Lease{leaseOf("leader", g)})[0])
			next := s.spec("leader")["renewTime"].(string)[:19]
			if next <= last {
				s.Fatalf("renewTime is %s after %s", next, last)
			}
			last = next
		}
		s.ok(locks.Release(s.Context(), leaseOf("leader", g)))
		if now := s.spec("leader"); now["holderIdentity"] != "" || now["leaseTransitions"] != 1.0 {
			s.Errorf("the spec after the release is %v", now)
		}
		s.acquire(other, request("leader"))
		now := s.spec("leader")
		renewed, err := time.Parse(time.RFC3339, now["renewTime"].(string))
		if err != nil || now["leaseTransitions"] != 2.0 || time.Since(renewed).Abs() > time.Second { // not in the future any more
			s.Errorf("the spec of the next holder is %v", now)
		}
	})
}

// TestManyTransitions: leaseTransitions begins again when it is as great as Kubernetes allows.
func TestManyTransitions(t *testing.T) {
	play(t, func(s scene) {
		s.server.Put("shop", "leader", map[string]any{"spec": map[string]any{"holderIdentity": "", "leaseTransitions": math.MaxInt32 - 1}})
		locks := s.locks()
		for _, want := range []float64{math.MaxInt32, 0, 1} {
			g := s.acquire(locks, request("leader"))
			if now := s.spec("leader"); now["leaseTransitions"] != want {
				s.Errorf("the spec is %v, want %v transitions", now, want)
			}
			s.ok(locks.Release(s.Context(), leaseOf("leader", g)))
		}
	})
}

// TestMinimumHold: client-go sees a holder as long as the minimum hold lasts.
func TestMinimumHold(t *testing.T) {
	play(t, func(s scene) {
		locks := s.locks()
		req := request("leader")
		req.MinHold = time.Minute
		g := s.acquire(locks, req)
		s.ok(locks.Release(s.Context(), leaseOf("leader", g)))
		if now := s.spec("leader"); now["holderIdentity"] == "" || now["leaseDurationSeconds"] != 60.0 {
			s.Errorf("the spec is %v", now)
		}
		s.held(s.locks(), "leader", "in the minimum hold")
		time.Sleep(time.Minute + 3*time.Second)
		s.acquire(s.locks(), request("leader"))
	})
}

// TestKept: labels and annotations of others stay, and so does the object of a lock that another
// program has created.
func TestKept(t *testing.T) {
	play(t, func(s scene) {
		s.server.Put("shop", "leader", map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "shop"}, "annotations": map[string]any{"note": "theirs"}}})
		locks := s.locks()
		for range 5 {
			g := s.acquire(locks, request("leader"))
			s.ok(locks.Release(s.Context(), leaseOf("leader", g)))
			time.Sleep(time.Hour)
		}
		s.acquire(locks, request("other"))
		meta := s.server.Object("shop", "leader")["metadata"].(map[string]any)
		if meta["labels"].(map[string]any)["app"] != "shop" || meta["annotations"].(map[string]any)["note"] != "theirs" {
			s.Errorf("the metadata are %v", meta)
		}
	})
}

// TestDamaged: a record that is no lock, or that a later version has written, is refused and stays.
// The list has the others.
func TestDamaged(t *testing.T) {
	play(t, func(s scene) {
		locks := s.locks()
		for name, value := range map[string]string{"damaged": "garbage", "later": `{"format":2,"name":"later","holders":{"a":1}}`} {
			s.server.Put("shop", name, map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{"fencelock.github.io/key": "fencelock.lock/" + name, "fencelock.github.io/value": value}},
				"spec":     map[string]any{"holderIdentity": "web_1", "leaseDurationSeconds": 1},
			})
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			if _, err := locks.Acquire(ctx, waiting(name)); !errors.Is(err, driver.ErrConfig) {
				s.Errorf("%s: got %v, want ErrConfig", name, err)
			}
			cancel()
			s.shows(s.records(), "fencelock.lock/"+name, value)
		}
		s.acquire(locks, request("good"))
		if list, err := locks.List(s.Context(), driver.Query{}); len(list) != 1 || !errors.Is(err, driver.ErrConfig) {
			s.Errorf("the list has %d names (%v), want one and ErrConfig", len(list), err)
		}
	})
}
