package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

// resize sets the limit of "a".
func resize(t testing.TB, e driver.Resizer, limit int) {
	t.Helper()
	if err := e.Resize(context.Background(), "a", limit); err != nil {
		t.Fatalf("resize to %d: %v", limit, err)
	}
}

// limitOf returns the limit of "a" that everybody goes by, as a holder shows it.
func limitOf(t testing.TB, e *filelock.Engine) int {
	t.Helper()
	l := leaseOf("a", acquire(t, e, seats("a", 1_000_000, 1)))
	defer release(t, e, l)
	s, err := e.List(context.Background(), driver.Query{Prefix: "a", Exact: true})
	if err != nil || len(s) != 1 {
		t.Fatalf("List: %+v, %v", s, err)
	}
	return s[0].Limit
}

func TestResizeIsSeenWithoutEvents(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	deaf, other := filelock.New(dir, nil), filelock.New(dir, nil)
	deaf.Poll()
	acquire(t, other, seats("a", 1, 1))
	first := queueUpFor(t, t.Context(), deaf, seats("a", 1, 1))
	second := queueUpFor(t, t.Context(), deaf, seats("a", 1, 1))
	resize(t, other, 3)
	await(t, first, "a grant for the waiter that hears of nothing")
	await(t, second, "a grant for the one behind it")
}

func TestLimitOfANameThatNobodyUses(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	resize(t, filelock.New(dir, nil), 3)
	e := filelock.New(dir, nil)
	idle(t, e, dir)
	if n := limitOf(t, e); n != 3 {
		t.Errorf("the limit is %d, not 3", n)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a", "limit")); err != nil || string(b) != "00000000000000000003" {
		t.Errorf("in the file: %q, %v", b, err)
	}
}

func TestLimitThroughKills(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	var tried, done atomic.Int64
	for round := range 8 {
		p := proc.Start(t, "files", dir)
		busy, ended := make(chan struct{}), make(chan struct{})
		go func() { // ends with the process
			defer close(ended)
			for i := 0; ; i++ {
				if i == round {
					close(busy)
				}
				n := tried.Add(1)
				if err := p.Resize(context.Background(), "a", int(n)); err != nil {
					return
				}
				done.Store(n)
			}
		}()
		await(t, busy, "some resizes")
		p.Kill(t)
		await(t, ended, "the end of the process")
		n := int64(limitOf(t, e))
		if done.Load() > 0 && (n < done.Load() || n > tried.Load()) {
			t.Errorf("the limit is %d; %d was set, and %d at most was tried", n, done.Load(), tried.Load())
		}
		idle(t, e, dir)
	}
	t.Logf("%d of %d resizes were answered", done.Load(), tried.Load())
}

func TestPowerCutWhileTheLimitIsReplaced(t *testing.T) {
	t.Parallel()
	for _, half := range []string{"", "0000", strings.Repeat("\x00", 20), "00000000000000000009"} {
		dir := tempDir(t)
		e := filelock.New(dir, nil)
		resize(t, e, 4)
		if err := os.WriteFile(filepath.Join(dir, "a", "new.limit"), []byte(half), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := limitOf(t, e); n != 4 {
			t.Errorf("beside %q the limit is %d, not 4", half, n)
		}
		idle(t, e, dir)
		resize(t, e, 5)
		if n := limitOf(t, e); n != 5 {
			t.Errorf("the limit is %d, not 5", n)
		}
	}
}

func TestDamagedLimitFile(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	resize(t, e, 2)
	path := filepath.Join(dir, "a", "limit")
	for _, content := range []string{"", "2", "2\n", strings.Repeat("0", 20), strings.Repeat("x", 20), "-0000000000000000002"} {
		l := leaseOf("a", acquire(t, e, seats("a", 2, 1)))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []bool{false, true} {
			req := seats("a", 2, 1)
			req.Wait = wait
			_, err := e.Acquire(context.Background(), req)
			if !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, path, "damaged", "Resize", "remove the file") {
				t.Errorf("with %q, wait %v: %v", content, wait, err)
			}
		}
		s, err := e.List(context.Background(), driver.Query{})
		if err != nil || len(s) != 1 || !errors.Is(s[0].Trouble, driver.ErrUnavailable) || !oneLineWith(s[0].Trouble, path) {
			t.Errorf("List with %q: %+v, %v", content, s, err)
		}
		release(t, e, l)
		release(t, e, hold(t, e, "a")) // who has no limit does not care
		resize(t, e, 2)
		if n := limitOf(t, e); n != 2 {
			t.Errorf("repaired after %q the limit is %d", content, n)
		}
	}
	idle(t, e, dir)
}

func TestDamageWakesWaiters(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	acquire(t, e, seats("a", 1, 1))
	failed := make(chan error, 1)
	req := seats("a", 1, 1)
	req.Wait = true
	joined := make(chan struct{}, 1)
	req.OnWait = func(driver.WaitInfo) { notify(joined) }
	go func() { // ends with the error
		_, err := e.Acquire(context.Background(), req)
		failed <- err
	}()
	await(t, joined, "waiting")
	if err := os.WriteFile(filepath.Join(dir, "a", "limit"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := await(t, failed, "an error"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestLimitRemoved(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	resize(t, e, 1)
	acquire(t, e, seats("a", 2, 1))
	granted := queueUpFor(t, t.Context(), e, seats("a", 2, 1))
	if err := os.Remove(filepath.Join(dir, "a", "limit")); err != nil {
		t.Fatal(err)
	}
	await(t, granted, "a grant by the limit of the requests")
}
