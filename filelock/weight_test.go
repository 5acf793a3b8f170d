package filelock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

// seats is a shared request with a limit.
func seats(name string, limit, weight int) driver.Request {
	return driver.Request{Name: name, Mode: driver.Shared, Limit: limit, Weight: weight, TTL: time.Minute}
}

func TestKilledHoldersUnitsComeBack(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	heavy, light, waiter := proc.Start(t, "files", dir), proc.Start(t, "files", dir), proc.Start(t, "files", dir)
	acquire(t, heavy, seats("a", 5, 3))
	acquire(t, light, seats("a", 5, 1))
	granted := queueUpFor(t, t.Context(), waiter, seats("a", 5, 4))
	s, err := waiter.List(t.Context(), driver.Query{Prefix: "a", Exact: true})
	if err != nil || len(s) != 1 || len(s[0].Holders) != 2 || len(s[0].Waiters) != 1 {
		t.Fatalf("List: %+v, %v", s, err)
	}
	if h, w := s[0].Holders, s[0].Waiters; s[0].Limit != 5 || h[0].Weight != 3 || h[1].Weight != 1 || w[0].Weight != 4 {
		t.Errorf("List: %+v", s[0])
	}
	if _, err := light.Acquire(t.Context(), seats("a", 5, 1)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("past the heavy waiter: %v", err)
	}
	start := time.Now()
	heavy.Kill(t)
	await(t, granted, "the units of the killed holder")
	t.Logf("taken %v after the kill", time.Since(start))
	if _, err := light.Acquire(t.Context(), seats("a", 5, 1)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside 1 and 4 of 5: %v", err)
	}
}

func TestFrozenHeavyWaiterIsPassed(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	heavy, light := proc.Start(t, "files", dir), proc.Start(t, "files", dir)
	e := filelock.New(dir, nil)
	l := leaseOf("a", acquire(t, e, seats("a", 5, 3)))
	first := queueUpFor(t, t.Context(), heavy, seats("a", 5, 4))
	second := queueUpFor(t, t.Context(), light, seats("a", 5, 1))
	heavy.Freeze(t)
	g := await(t, second, "the light one behind the frozen one")
	release(t, light, leaseOf("a", g))
	heavy.Thaw(t)
	release(t, e, l)
	await(t, first, "the heavy one, which kept its place")
}

func TestHeavyWaiterThatLeavesLetsOthersIn(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p, e := proc.Start(t, "files", dir), filelock.New(dir, nil)
	acquire(t, e, seats("a", 5, 3))
	ctx, cancel := context.WithCancel(t.Context())
	queueUpFor(t, ctx, p, seats("a", 5, 4))
	granted := queueUpFor(t, t.Context(), e, seats("a", 5, 2))
	cancel()
	await(t, granted, "the light one")
}

func TestTheGreatestWeights(t *testing.T) {
	t.Parallel()
	e := filelock.New(tempDir(t), nil)
	acquire(t, e, seats("a", driver.MaxLimit, driver.MaxLimit))
	for range 3 {
		queueUpFor(t, t.Context(), e, seats("a", driver.MaxLimit, driver.MaxLimit))
		if _, err := e.Acquire(t.Context(), seats("a", driver.MaxLimit, 1)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside them all: %v", err)
		}
	}
}

func TestLimitsThatDiffer(t *testing.T) {
	t.Parallel()
	e := filelock.New(tempDir(t), nil)
	l := leaseOf("a", acquire(t, e, seats("a", 5, 1)))
	if _, err := e.Acquire(t.Context(), seats("a", 6, 1)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without an override: %v", err)
	}
	resize(t, e, 4)
	release(t, e, leaseOf("a", acquire(t, e, seats("a", 6, 3))))
	if _, err := e.Acquire(t.Context(), seats("a", 0, 0)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no limit at all: %v", err)
	}
	if _, err := e.Acquire(t.Context(), seats("a", 6, 6)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("heavier than the override: %v", err)
	}
	release(t, e, l)
	acquire(t, e, seats("a", 6, 6)) // alone
	if _, err := e.Acquire(t.Context(), seats("a", 6, 1)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside the one that is alone: %v", err)
	}
}

func TestBreakEndsWeightyHolders(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p, e := proc.Start(t, "files", dir), filelock.New(dir, nil)
	acquire(t, p, seats("a", 5, 3))
	acquire(t, e, seats("a", 5, 2))
	granted := queueUpFor(t, t.Context(), p, seats("a", 5, 5))
	if _, err := e.Break(t.Context(), "a", "test"); err != nil {
		t.Fatal(err)
	}
	await(t, granted, "all the units")
}

// TestProcessesShareUnits lets several processes take what they can, and counts.
func TestProcessesShareUnits(t *testing.T) {
	t.Parallel()
	const limit = 4
	dir := tempDir(t)
	var taken, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		p := proc.Start(t, "files", dir)
		for range 3 {
			wg.Go(func() {
				for j := range 15 {
					weight := 1 + (i+j)%3
					g := acquire(t, p, seats("a", limit, weight))
					n := taken.Add(int64(weight))
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					taken.Add(int64(-weight))
					release(t, p, leaseOf("a", g))
				}
			})
		}
	}
	wg.Wait()
	if n := most.Load(); n > limit {
		t.Errorf("%d units were taken at once, of %d", n, limit)
	}
	t.Logf("%d of %d units were taken at most", most.Load(), limit)
}

func TestTicketNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ limit, weight int }{
		"00000000000000000007.x.w.OWNER":    {},
		"00000000000000000007.s.h.OWNER":    {},
		"00000000000000000007.s3.w.OWNER":   {3, 1},
		"00000000000000000007.s5w2.h.OWNER": {5, 2},
	} {
		if limit, weight, ok := filelock.ParseTicket(name); !ok || limit != want.limit || weight != want.weight {
			t.Errorf("%s: limit %d, weight %d, %v", name, limit, weight, ok)
		}
	}
	for _, kind := range []string{"", "q", "x3", "s0", "s-3", "s03", "s+3", "sw2", "s5w", "s5w0", "s5w1", "s5w-2", "s5w2w2", "s5w02", "s99999999999999999999"} {
		if _, _, ok := filelock.ParseTicket("00000000000000000007." + kind + ".w.OWNER"); ok {
			t.Errorf("%q was taken for a ticket's", kind)
		}
	}
}
