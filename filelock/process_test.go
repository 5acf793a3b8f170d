package filelock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

func TestFourProcessesCountToAThousand(t *testing.T) {
	t.Parallel()
	dir, file := tempDir(t), filepath.Join(tempDir(t), "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		p := proc.Start(t, "files", dir)
		wg.Go(func() {
			for range 250 {
				if err := increment(p, file); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b, _ := os.ReadFile(file); string(b) != "1000" {
		t.Errorf("the counter is %s", b)
	}
}

// increment adds one to the number in a file under the lock, without any care.
func increment(e driver.Engine, file string) error {
	req := request("counter")
	req.Wait = true
	g, err := e.Acquire(context.Background(), req)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	return e.Release(context.Background(), leaseOf("counter", g))
}

func TestTenProcessesInOrderWithOneKilledAndOneFrozen(t *testing.T) {
	t.Parallel()
	dir, ctx := tempDir(t), t.Context()
	first := proc.Start(t, "files", dir)
	l := hold(t, first, "a")
	ps := make([]*proc.Process, 10)
	granted := make([]<-chan driver.Grant, 10)
	for i := range ps {
		ps[i] = proc.Start(t, "files", dir)
		granted[i] = queueUp(t, ctx, ps[i], "a")
	}
	ps[1].Kill(t)
	ps[3].Freeze(t)
	release(t, first, l)
	last := l.Token
	for i := range ps {
		if i == 1 || i == 3 {
			continue
		}
		g := await(t, granted[i], "the grant of waiter "+strconv.Itoa(i))
		if g.Token <= last {
			t.Errorf("waiter %d has token %d after %d", i, g.Token, last)
		}
		last = g.Token
		release(t, ps[i], leaseOf("a", g))
	}
	ps[3].Thaw(t)
	g := await(t, granted[3], "the grant of the waiter that was frozen")
	release(t, ps[3], leaseOf("a", g))
}

func TestCrashedHoldersLockIsTaken(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	waiter := proc.Start(t, "files", dir)
	for range 5 {
		p := proc.Start(t, "files", dir)
		hold(t, p, "a")
		granted := queueUp(t, t.Context(), waiter, "a")
		start := time.Now()
		p.Kill(t)
		g := await(t, granted, "the crashed holder's lock")
		t.Logf("taken %v after the kill", time.Since(start))
		release(t, waiter, leaseOf("a", g))
	}
}

func TestHandOverTime(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	a, b := filelock.New(dir, nil), filelock.New(dir, nil)
	var all time.Duration
	for range 50 {
		l := hold(t, a, "a")
		granted := queueUp(t, t.Context(), b, "a")
		start := time.Now()
		release(t, a, l)
		g := await(t, granted, "the hand-over")
		all += time.Since(start)
		release(t, b, leaseOf("a", g))
	}
	t.Logf("a hand-over took %v on average", all/50)
}

func TestChildKeepsTheLock(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e, other := filelock.New(dir, nil), filelock.New(dir, nil)
	l := hold(t, e, "a")
	files, err := e.Inherit(l)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = files
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	release(t, e, l)
	if _, err := other.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("while the child lives: %v", err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	release(t, other, leaseOf("a", acquire(t, other, request("a"))))
}

func TestFlockCommandInteroperates(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Log("no flock(1) here")
		return
	}
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	l := hold(t, e, "a")
	lock := filepath.Join(dir, "a", "lock")
	if err := exec.Command("flock", "-n", lock, "true").Run(); err == nil {
		t.Error("flock(1) got in beside us")
	}
	release(t, e, l)
	foreign := exec.Command("flock", "-n", lock, "sh", "-c", "echo in; exec sleep 100")
	out, _ := foreign.StdoutPipe()
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = foreign.Process.Kill() // Break has, as a rule
		_ = foreign.Wait()
	}()
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside flock(1): %v", err)
	}
	s, err := e.List(t.Context(), driver.Query{Prefix: "a", Exact: true})
	if err != nil || len(s) != 1 || len(s[0].Holders) != 1 || !s[0].Holders[0].Foreign {
		t.Errorf("List: %+v, %v", s, err)
	}
	granted := queueUp(t, t.Context(), e, "a")
	if _, err := filelock.New(dir, &filelock.Config{BreakWait: 1}).Break(t.Context(), "a", "test"); err != nil {
		t.Errorf("break: %v", err)
	}
	await(t, granted, "the lock of flock(1), which was killed")
}

func TestBreakKillsAFrozenHolder(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p := proc.Start(t, "files", dir)
	l := hold(t, p, "a")
	p.Freeze(t)
	e := filelock.New(dir, nil)
	granted := queueUp(t, t.Context(), e, "a")
	token, err := e.Break(t.Context(), "a", "it hangs")
	if err != nil || token <= l.Token {
		t.Fatalf("break: %d, %v", token, err)
	}
	if g := await(t, granted, "the broken lock"); g.Token <= token {
		t.Errorf("token %d after %d", g.Token, token)
	}
	if errs := p.Renew(t.Context(), []driver.Lease{l}); errs[0] == nil {
		t.Error("the frozen holder lives")
	}
}

func TestBrokenHolderLearnsWhoAndWhy(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p := proc.Start(t, "files", dir)
	lost := make(chan error, 1)
	req := request("a")
	req.OnLost = func(err error) { lost <- err }
	acquire(t, p, req)
	start := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := filelock.New(dir, nil).Break(t.Context(), "a", "deploy")
		done <- err
	}()
	err := await(t, lost, "the loss")
	t.Logf("told after %v: %v", time.Since(start), err)
	if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "deploy") {
		t.Errorf("cause: %v", err)
	}
	if err := await(t, done, "the end of Break"); err != nil {
		t.Error(err)
	}
	hold(t, p, "b") // it lives
}
