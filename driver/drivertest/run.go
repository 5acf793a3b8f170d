package drivertest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// identity is the identity of all requests.
var identity = driver.Identity{Host: "conformance.example", PID: 4711, Note: "a conformance test"}

// run is one case that is running for one engine. Methods that fail the case must be called on the
// goroutine of the case.
type run struct {
	*verdict
	*faults
	traits   driver.Traits
	bubble   bool
	ttl      time.Duration // a lease that the case can wait for to expire
	long     time.Duration // a lease that does not expire during the case
	patience time.Duration // how long anything that must happen may take
	most     int           // the longest value of a record

	ctx    context.Context // ends with the case
	cancel context.CancelFunc
	calls  sync.WaitGroup // calls in progress

	known  sync.Mutex // guards owners
	owners map[string]bool
}

// newCase makes a Case from a function that uses one World.
func newCase(name string, needs func(driver.Traits) bool, ask func(*run)) Case {
	return Case{Name: name, Needs: needs, Run: func(t testing.TB, e Suite) {
		t.Helper()
		s := sit(t, e)
		defer s.end()
		ask(s)
	}}
}

// The possible values of Case.Needs.

func anyEngine(driver.Traits) bool         { return true }
func leased(t driver.Traits) bool          { return t.Leased }
func unleased(t driver.Traits) bool        { return !t.Leased }
func limits(t driver.Traits) bool          { return t.Limits }
func noLimits(t driver.Traits) bool        { return !t.Limits }
func rates(t driver.Traits) bool           { return t.Rates }
func keepsMinHolds(t driver.Traits) bool   { return t.MaxMinHold >= 0 }
func ordered(t driver.Traits) bool         { return t.Order != driver.OrderNone }
func orderedLimits(t driver.Traits) bool   { return ordered(t) && limits(t) }
func fairToAll(t driver.Traits) bool       { return t.Order == driver.OrderAll }
func fairToProcesses(t driver.Traits) bool { return t.Order == driver.OrderProcess }

// sit creates the World of one case.
func sit(t testing.TB, e Suite) *run {
	s := &run{bubble: e.Bubble, ttl: e.TTL, patience: e.Patience, most: cmp.Or(e.MaxRecord, driver.MaxRecord), owners: map[string]bool{}}
	s.verdict = &verdict{TB: t, omitted: e.omitted}
	s.faults = &faults{t: t, world: e.World(t), frozen: map[Client]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.traits = s.client().Traits()
	s.measure()
	return s
}

// measure determines the durations of the case.
func (t *run) measure() {
	if t.ttl == 0 {
		t.ttl = 2 * time.Second
	}
	if t.patience == 0 {
		t.patience = 20 * time.Second
	}
	if t.bubble {
		t.ttl = time.Hour
		t.patience = t.ttl / 6
	}
	t.ttl = max(t.ttl, t.traits.MinTTL)
	t.long = max(t.ttl, 3*t.patience)
	if most := t.traits.MaxTTL; most > 0 {
		t.ttl, t.long = min(t.ttl, most), min(t.long, most)
	}
}

// end cancels everything that still waits, so that no goroutine outlives the case.
func (t *run) end() {
	t.Helper()
	t.undo()
	t.cancel()
	done := make(chan struct{})
	go func() { // ends when every call has returned
		t.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(t.patience):
		t.Errorf("a call did not return within %v of the end of its context", t.patience)
	}
}

// client creates a client.
func (t *run) client() Client { return t.world.Client(t.TB) }

// clients creates n clients.
func (t *run) clients(n int) []Client {
	cs := make([]Client, n)
	for i := range cs {
		cs[i] = t.client()
	}
	return cs
}

// request returns a request with a lease that does not expire during the case.
func (t *run) request(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity}
}

// shortLease returns a request with a lease that the case can wait for to expire.
func (t *run) shortLease(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.ttl, Identity: identity}
}

// longMinHold returns a minimum hold that does not end during the case.
func (t *run) longMinHold() time.Duration { return cmp.Or(t.traits.MaxMinHold, 24*time.Hour) }

// shared returns a shared request with a lease that does not expire during the case.
func (t *run) shared(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity, Mode: driver.Shared}
}

// weighing returns a shared request with a limit and a weight. Its lease does not expire during the
// case.
func (t *run) weighing(name string, limit, weight int) driver.Request {
	req := t.shared(name)
	req.Limit, req.Weight = limit, weight
	return req
}

// settle waits for a moment, so that anything that must not happen would happen.
func (t *run) settle() {
	if t.bubble {
		synctest.Wait()
		return
	}
	time.Sleep(100 * time.Millisecond)
}

// tick is the pause between two checks of a condition.
func (t *run) tick() time.Duration { return t.patience / 200 }

// waitExpiry waits until a short lease has expired.
func (t *run) waitExpiry() { time.Sleep(t.ttl + t.ttl/20) }

// slack is how much clocks of different resolution may differ.
func (t *run) slack() time.Duration {
	if t.bubble {
		return 0
	}
	return 20 * time.Millisecond
}

// eventually fails the case unless ok becomes true within d.
func (t *run) eventually(d time.Duration, what string, ok func() bool) {
	t.Helper()
	t.step()
	for end := time.Now().Add(d); !ok(); time.Sleep(t.tick()) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", d, what)
		}
	}
}

// notHeld fails the case unless err is ErrNotHeld.
func (t *run) notHeld(err error, what string) {
	t.Helper()
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("%s: got %v, want ErrNotHeld", what, err)
	}
}

// within runs one engine call and fails the case if it takes too long.
func within[R any](t *run, what string, do func(context.Context) R) R {
	t.Helper()
	t.step()
	ctx, cancel := context.WithTimeout(t.ctx, t.patience)
	defer cancel()
	answer := make(chan R, 1)
	t.calls.Go(func() { answer <- do(ctx) }) // ends when the engine answers
	select {
	case r := <-answer:
		return r
	case <-time.After(t.patience + t.patience/10):
		t.Fatalf("%s did not return within %v", what, t.patience)
		panic("unreachable")
	}
}
