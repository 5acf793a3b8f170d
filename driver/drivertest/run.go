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

// identity is what every request of the exam says about itself.
var identity = driver.Identity{Host: "exam.example", PID: 4711, Note: "an exam"}

// run is one engine at one case. Its methods that fail the case belong to
// the goroutine of the case.
type run struct {
	*verdict
	*faults
	traits   driver.Traits
	bubble   bool
	ttl      time.Duration // a lease whose end the case can wait for
	long     time.Duration // a lease that outlives the case's patience
	patience time.Duration // how long something that must happen may take

	ctx    context.Context // ends with the case
	cancel context.CancelFunc
	calls  sync.WaitGroup // the calls under way

	known  sync.Mutex // guards owners
	owners map[string]bool
}

// newCase makes a Case of a function that talks to one world.
func newCase(name string, needs func(driver.Traits) bool, ask func(*run)) Case {
	return Case{Name: name, Needs: needs, Run: func(t testing.TB, e Suite) {
		t.Helper()
		s := sit(t, e)
		defer s.end()
		ask(s)
	}}
}

// What a case may need.

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

// sit opens a world for one case.
func sit(t testing.TB, e Suite) *run {
	s := &run{bubble: e.Bubble, ttl: e.TTL, patience: e.Patience, owners: map[string]bool{}}
	s.verdict = &verdict{TB: t, omitted: e.omitted}
	s.faults = &faults{t: t, world: e.World(t), frozen: map[Client]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.traits = s.client().Traits()
	s.measure()
	return s
}

// measure settles the durations of the case.
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

// end gives up what still waits, so that no goroutine outlives the case.
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

// client opens another client.
func (t *run) client() Client { return t.world.Client(t.TB) }

// clients opens n clients.
func (t *run) clients(n int) []Client {
	cs := make([]Client, n)
	for i := range cs {
		cs[i] = t.client()
	}
	return cs
}

// request asks for a lease that does not end during the case.
func (t *run) request(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity}
}

// shortLease asks for a lease whose end the case waits for.
func (t *run) shortLease(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.ttl, Identity: identity}
}

// longMinHold is a minimum hold that outlives the case.
func (t *run) longMinHold() time.Duration { return cmp.Or(t.traits.MaxMinHold, 24*time.Hour) }

// shared asks for a shared lease that does not end during the case.
func (t *run) shared(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity, Mode: driver.Shared}
}

// weighing asks for a shared lease that takes so much of a limit, and does not
// end during the case.
func (t *run) weighing(name string, limit, weight int) driver.Request {
	req := t.shared(name)
	req.Limit, req.Weight = limit, weight
	return req
}

// settle gives what must not happen a chance to happen.
func (t *run) settle() {
	if t.bubble {
		synctest.Wait()
		return
	}
	time.Sleep(100 * time.Millisecond)
}

// tick is the pause between two looks at a condition.
func (t *run) tick() time.Duration { return t.patience / 200 }

// waitExpiry lets a brief lease run out.
func (t *run) waitExpiry() { time.Sleep(t.ttl + t.ttl/20) }

// slack is what clocks of different grain may differ by.
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
