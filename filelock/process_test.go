package filelock_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

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
	verdict.Is(t, "Files: the holder freezes", verdict.Safe)
	dir := tempDir(t)
	p := proc.Start(t, "files", dir)
	l := hold(t, p, "a")
	p.Freeze(t)
	e := filelock.New(dir, nil)
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("beside the frozen holder: %v", err)
	}
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
	broken := acquire(t, p, req)
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
	next := hold(t, filelock.New(dir, nil), "a")
	verdict.Is(t, "Files: break while the holder works", verdict.Guarded, verdict.OfHolders(nil, broken.Token, next.Token))
}
