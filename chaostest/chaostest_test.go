//go:build unix

package chaostest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
)

// envService makes the test binary a service, which holds a lock, and records each line of its
// input as a write with that token.
const envService = "FENCELOCK_CHAOSTEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(envService) == "" {
		os.Exit(m.Run())
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	w, err := history.FromEnv()
	if err != nil {
		return err
	}
	for _, e := range []history.Event{{Kind: history.Call}, {Kind: history.Grant, Token: 1}, {Kind: history.Alive}} {
		e.Name, e.ID = "n", fmt.Sprint(os.Getpid())
		if err := w.Write(e); err != nil {
			return err
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var token int64
		if _, err := fmt.Sscan(in.Text(), &token); err != nil {
			return err
		}
		if err := w.Write(history.Event{Kind: history.Write, Name: "n", Token: token}); err != nil {
			return err
		}
	}
	return nil
}

// service starts a service, and returns its input.
func service(t *testing.T, run *chaostest.Run, worker string) (*chaostest.Process, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envService+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return run.Start(worker, cmd), in
}

func say(t *testing.T, in io.Writer, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(in, line); err != nil {
		t.Fatal(err)
	}
}

func written(n int) func(*history.History) bool {
	return func(h *history.History) bool { return len(h.Writes) >= n }
}

func TestKill(t *testing.T) {
	run := chaostest.New(t)
	first, in := service(t, run, "w")
	say(t, in, "1")
	run.Await("write", written(1))
	first.Kill()
	if err := first.Wait(); err == nil {
		t.Error("a killed process has ended without an error")
	}
	h := run.Check(history.Rules{})
	if a := h.Acquisitions[0]; a.Died == 0 || a.Worker != "w" {
		t.Errorf("%+v", a)
	}
	again, in := service(t, run, "w")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
	h = run.Await("second process", func(h *history.History) bool { return len(h.Acquisitions) == 2 })
	if a := h.Acquisitions; len(h.Workers) != 1 || a[0].Died >= a[1].Returned || a[1].Died <= a[1].Returned {
		t.Errorf("%+v, %+v", h.Workers, a)
	}
}

func TestFreeze(t *testing.T) {
	run := chaostest.New(t)
	p, in := service(t, run, "w")
	run.Await("acquisition", func(h *history.History) bool { return len(h.Acquisitions) == 1 })
	p.Freeze()
	frozen := history.Now()
	if h := run.Check(history.Rules{}); len(h.Faults) != 1 || !slices.Equal(h.Faults[0].Workers, []string{"w"}) {
		t.Errorf("while it is frozen, the faults are %+v", h.Faults)
	}
	say(t, in, "1")
	time.Sleep(50 * time.Millisecond)
	thawed := history.Now()
	p.Thaw()
	h := run.Await("write", written(1))
	if at := h.Origin + h.Writes[0].At; at < thawed {
		t.Errorf("a frozen process has written %v before it was thawed", thawed-at)
	}
	f := h.Faults[0]
	if f.What != "freeze" || !slices.Equal(f.Workers, []string{"w"}) || f.Server != "" || h.Origin+f.From > frozen || h.Origin+f.To < thawed {
		t.Errorf("%+v", f)
	}
}

func TestFault(t *testing.T) {
	run := chaostest.New(t)
	end := run.Fault("pause")
	end()
	if f := run.Await("fault", func(h *history.History) bool { return len(h.Faults) == 1 }).Faults[0]; f.What != "pause" || f.Server == "" || f.To < f.From {
		t.Errorf("%+v", f)
	}
}

// TestProxy: a proxy forwards, and loses on command what it is sent.
func TestProxy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }() // ends with the connection
		}
	}()
	p := chaostest.New(t).Proxy(ln.Addr().String())
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	say(t, c, "+hello")
	if line, err := in.ReadString('\n'); line != "+hello\n" {
		t.Fatal(line, err)
	}
	p.Drop(chaostest.Both)
	say(t, c, "+lost")
	for p.Lost() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); err == nil {
		t.Errorf("%q has arrived", line)
	}
}

// A failing stands for a test that fails.
type failing struct {
	testing.TB
	dir    string
	errors []string
}

func (f *failing) Helper()                      {}
func (f *failing) Failed() bool                 { return len(f.errors) > 0 }
func (f *failing) ArtifactDir() string          { return f.dir }
func (f *failing) Logf(string, ...any)          {}
func (f *failing) Error(args ...any)            { f.errors = append(f.errors, fmt.Sprint(args...)) }
func (f *failing) Errorf(s string, args ...any) { f.Error(fmt.Sprintf(s, args...)) }
func (f *failing) Fatalf(s string, args ...any) { f.Fatal(fmt.Sprintf(s, args...)) }
func (f *failing) Fatal(args ...any) {
	f.Error(args...)
	panic(errFatal)
}

var errFatal = errors.New("fatal")

// fails calls do, which must fail the test with Fatal.
func fails(t *testing.T, do func()) {
	t.Helper()
	defer func() {
		if recover() != errFatal {
			t.Error("it did not fail")
		}
	}()
	do()
}

// TestNamesDiffer: two processes at the same time have two names.
func TestNamesDiffer(t *testing.T) {
	f := &failing{TB: t}
	run := chaostest.New(f)
	first, _ := service(t, run, "w")
	for _, name := range []string{"w", ""} {
		fails(t, func() { service(t, run, name) })
	}
	first.Kill()
	service(t, run, "w")
}

// TestKillReturns: it does not wait for what the process has started.
func TestKillReturns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	shell := chaostest.New(t).Start("w", exec.Command("sh", "-c", `sleep 60 & echo $! > "$0.new"; mv "$0.new" "$0"; wait`, file))
	pid := 0
	for pid == 0 {
		time.Sleep(time.Millisecond)
		text, _ := os.ReadFile(file) // it may not exist yet
		_, _ = fmt.Sscan(string(text), &pid)
	}
	shell.Kill()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it has waited for the other process: %v", err)
	}
}

// TestCheckFails: a test fails with the violations, ten at most, and its history is kept.
func TestCheckFails(t *testing.T) {
	dir := t.TempDir()
	w, err := history.Create(dir, "w")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 13 {
		if err := w.Write(history.Event{Kind: history.Write, Name: "n", Token: int64(20 - i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := &failing{TB: t, dir: t.TempDir()}
	h := chaostest.Check(f, history.Rules{}, dir)
	if len(h.Violations) != 12 || len(f.errors) != 11 || !strings.HasPrefix(f.errors[0], history.LateWrite+": ") || !strings.Contains(f.errors[10], "2 more") {
		t.Errorf("%d violations, errors: %q", len(h.Violations), f.errors)
	}
	kept, err := history.Read(filepath.Join(f.dir, "history.jsonl"))
	if err != nil || len(kept.Violations) != 12 {
		t.Error(kept, err)
	}
	fails(t, func() { chaostest.Check(f, history.Rules{}, filepath.Join(dir, "none")) })
	f.errors = nil
	if chaostest.Check(f, history.Rules{}, t.TempDir()); len(f.errors) != 1 || !strings.Contains(f.errors[0], "package record") {
		t.Errorf("nothing was recorded: %q", f.errors)
	}
}
