package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	testing.TB
	world    World
	traits   driver.Traits
	bubble   bool
	ttl      time.Duration // a lease whose end the case can wait for
	long     time.Duration // a lease that outlives the case's patience
	patience time.Duration // how long something that must happen may take

	omitted map[string]string // which cases failed by which omission; nil if a case is put alone
	failed  atomic.Bool

	ctx    context.Context // ends with the case
	cancel context.CancelFunc
	calls  sync.WaitGroup // the calls under way

	mu     sync.Mutex // guards owners, frozen, cut
	owners map[string]bool
	frozen map[Client]bool
	cut    bool // between Cut and Mend
}

// sit opens a world for one case.
func sit(t testing.TB, e Suite) *run {
	s := &run{TB: t, omitted: e.omitted, world: e.World(t), bubble: e.Bubble, ttl: e.TTL, patience: e.Patience,
		owners: map[string]bool{}, frozen: map[Client]bool{}}
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
	t.mu.Lock()
	for c := range t.frozen {
		c.Thaw(t.TB)
	}
	t.mu.Unlock()
	t.mend()
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

// freeze stops a client until thaw, or until the end of the case.
func (t *run) freeze(c Client) {
	t.mu.Lock()
	t.frozen[c] = true
	t.mu.Unlock()
	c.Freeze(t.TB)
}

// thaw lets a client go on, if it is frozen.
func (t *run) thaw(c Client) {
	t.mu.Lock()
	frozen := t.frozen[c]
	delete(t.frozen, c)
	t.mu.Unlock()
	if frozen {
		c.Thaw(t.TB)
	}
}

// needsCutter skips the case if the world cannot make its engine silent.
func (t *run) needsCutter() {
	t.Helper()
	if _, ok := t.world.(Cutter); !ok {
		t.Skip("the World is no drivertest.Cutter")
	}
}

// silence makes the engine silent until mend, or until the end of the case; ok is
// false if the world cannot.
func (t *run) silence() (ok bool) {
	w, ok := t.world.(Cutter)
	if ok {
		t.mu.Lock()
		t.cut = true
		t.mu.Unlock()
		w.Cut(t.TB)
	}
	return ok
}

// mend lets the engine answer again, if it is cut.
func (t *run) mend() {
	t.mu.Lock()
	cut := t.cut
	t.cut = false
	t.mu.Unlock()
	if cut {
		t.world.(Cutter).Mend(t.TB)
	}
}

// request asks for a lease that does not end during the case.
func (t *run) request(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity}
}

// shortLease asks for a lease whose end the case waits for.
func (t *run) shortLease(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.ttl, Identity: identity}
}

// shared asks for a shared lease that does not end during the case.
func (t *run) shared(name string) driver.Request {
	return driver.Request{Name: name, TTL: t.long, Identity: identity, Mode: driver.Shared}
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

// Errorf fails the case, which goes no further than its next step. What fails after the
// first is not told: mostly it follows from that. Any goroutine may call it.
func (t *run) Errorf(format string, args ...any) {
	t.Helper()
	if !t.failed.Swap(true) {
		t.TB.Errorf(format, args...)
	}
}

// Fatalf is Errorf, and ends the case.
func (t *run) Fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	t.TB.FailNow()
}

// step ends a case that has failed.
func (t *run) step() {
	if t.failed.Load() {
		t.TB.FailNow()
	}
}

// omits fails the case because the engine leaves out what other cases need too; those
// are then skipped.
func (t *run) omits(format string, args ...any) {
	t.Helper()
	if t.omitted != nil {
		t.omitted[format] = t.Name()
	}
	t.Fatalf(format, args...)
}

// unlessOmitted skips the case if one has failed before by the same omission.
func (t *run) unlessOmitted(format string) {
	t.Helper()
	if by := t.omitted[format]; by != "" {
		t.Skipf("it needs what %s failed by", by)
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
