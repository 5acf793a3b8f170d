// Package chaostest tests a service that uses locks, with real processes and network faults.
//
// A test starts the service several times and injects faults: it kills a process, freezes one, or
// puts a [Proxy] between a process and its server. The service records what it does with its locks;
// package record does that for locks of fencelock, and package history for all others. [Run.Check]
// joins the files and fails the test if two processes held a lock at the same time, a token was out
// of order, a resource accepted a late write, or a lock stayed closed after its holder's death.
//
//	run := chaostest.New(t)
//	link := run.Proxy("127.0.0.1:6379")
//	first := run.Start("first", exec.Command(service, link.Addr()))
//	run.Start("second", exec.Command(service, link.Addr()))
//	run.Await("an acquisition", func(h *history.History) bool { return len(h.Acquisitions) > 0 })
//	first.Kill()
//	...
//	run.Check(history.Rules{Death: ttl + time.Second})
//
// The folder examples/chaos has a whole test.
package chaostest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/faults"
)

// A Run is one test of a service.
type Run struct {
	// Dir is the folder in which the processes record what they do. A process that Start did not
	// start needs it in its environment; see history.Env.
	Dir string

	t         testing.TB
	writer    *history.Writer     // of the faults
	processes map[string]*Process // the last one of each worker
}

// New returns a Run that ends with the test.
func New(t testing.TB) *Run {
	t.Helper()
	dir := t.TempDir()
	writer, err := history.Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	return &Run{dir, t, writer, map[string]*Process{}}
}

// Await returns the history as soon as done returns true for it. It fails the test after a minute.
func (r *Run) Await(what string, done func(*history.History) bool) *history.History {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		h, err := history.Read(r.Dir)
		switch {
		case err != nil:
			r.t.Fatal(err)
		case done(h):
			return h
		case time.Now().After(end):
			r.t.Fatalf("no %s in a minute", what)
		}
	}
}

// Fault records a fault of which this package does not know, such as one of a Proxy, until end is
// called. It affects the given workers, or all of them if there is none. A worker that a fault
// affects does not show that a lock is closed; see [history.Rules].
func (r *Run) Fault(what string, workers ...string) (end func()) {
	e := history.Event{Kind: history.Injected, ID: fmt.Sprint(what, history.Now()), Name: what, Workers: workers}
	if len(workers) == 0 {
		e.Server = "all"
	}
	r.record(e)
	return func() { r.record(history.Event{Kind: history.Healed, ID: e.ID}) }
}

func (r *Run) record(e history.Event) {
	if err := r.writer.Write(e); err != nil {
		r.t.Error(err)
	}
}

// Check fails the test with the violations of the rules so far, and returns the history.
func (r *Run) Check(rules history.Rules) *history.History {
	r.t.Helper()
	return Check(r.t, rules, r.Dir)
}

// Check reads files, or those in folders, and fails the test with the violations of the rules, or if
// no process has recorded an acquisition or a write. With
// go test -artifacts, the history is kept in the artifacts of a test that failed.
func Check(t testing.TB, rules history.Rules, files ...string) *history.History {
	t.Helper()
	h, err := history.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	h.Judge(rules)
	if len(h.Acquisitions)+len(h.Writes) == 0 {
		t.Error("no process has recorded an acquisition or a write; package record says how")
	}
	const most = 10
	for _, v := range h.Violations[:min(most, len(h.Violations))] {
		t.Error(v)
	}
	if more := len(h.Violations) - most; more > 0 {
		t.Errorf("and %d more violations", more)
	}
	s := h.Stats()
	t.Logf("%d acquisitions, %d losses, %d writes and %d refused ones, %d faults", s.Acquisitions, s.Losses, s.Accepted, s.Refused, len(h.Faults))
	if t.Failed() {
		file, err := os.Create(filepath.Join(t.ArtifactDir(), "history.jsonl"))
		if err == nil {
			err = errors.Join(h.Write(file), file.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	return h
}

// A Proxy forwards the connections of a process to a server, and delays, loses, stalls, resets and
// repeats on command what they send. It recognises single requests of Redis, PostgreSQL and MySQL.
type Proxy = faults.Proxy

// The directions through a Proxy.
const (
	ToServer = faults.ToServer
	ToClient = faults.ToClient
	Both     = faults.Both
)

// Proxy starts a proxy for the server at target, "host:port". It is closed at the end of the test.
// Its faults are part of the history only if [Run.Fault] records them.
func (r *Run) Proxy(target string) *Proxy {
	r.t.Helper()
	p, err := faults.NewProxy(target)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}
