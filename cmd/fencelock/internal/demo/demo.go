//go:build unix

// Package demo is what fencelock demo shows: a worker is frozen while it holds a lock,
// its lease expires, another worker acquires the lock, and the late write of the first is refused.
//
// Nothing in it is simulated. The workers are processes of this program, which use package
// fencelock and really receive SIGSTOP. The files are in a temporary directory. The lock server is
// a memlock engine in the process that runs the demo; the workers reach it through a socket. Locks
// on files would not do: they have no lease, so the kernel keeps the lock of a frozen process.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The lock, and the files that the workers write under it.
const (
	lockName = "report"
	guarded  = "guarded.txt"
	plain    = "plain.txt"
	lease    = 5 * time.Second
)

// Line is one line of the story.
type Line struct {
	At   time.Duration // since the start
	Who  string        // who acts
	Text string        // what it does
}

// Run takes the steps of the story and calls show for each, when it happens. Without pauses it
// takes about one lease, otherwise half a minute. If a step does not end as it must, Run returns an
// error. When it returns, its processes have ended and its files are removed.
func Run(ctx context.Context, pauses bool, show func(Line) error) error {
	dir, err := os.MkdirTemp("", "fencelock-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	s := &story{ctx: ctx, dir: dir, pauses: pauses, show: show, start: time.Now()}
	server, err := serve(ctx, filepath.Join(dir, socket), s.renewed)
	if err != nil {
		cancel()
		return err
	}
	a, b := s.worker("worker A"), s.worker("worker B")
	s.play(a, b)
	s.compare()
	cancel() // kills the workers, also a frozen one
	a.wait()
	b.wait()
	server.stop()
	return s.err
}

// story is a run of the demo. After the first error, its methods do nothing.
type story struct {
	ctx    context.Context
	dir    string
	pauses bool
	show   func(Line) error
	start  time.Time
	err    error // the first one; the server does not use it

	mu       sync.Mutex // guards the fields below and calls of show
	failed   error      // what show returned
	followed string     // the worker whose renewals get a line
}

// play takes the steps.
func (s *story) play(a, b *worker) {
	s.say("demo", "starts two workers, processes %d and %d, that write the same files under one lock", a.pid(), b.pid())
	s.say("demo", "the lock is a lease: it expires %v after the last renewal", lease)
	s.say("demo", "%s checks fencing tokens, %s does not", guarded, plain)
	s.pause(3 * time.Second)
	first := s.ask(a, acquire)
	s.say(a.name, "acquires the lock: token %d", first.Token)
	s.follow(a.name)
	s.write(a)
	s.pause(1500 * time.Millisecond)
	next := s.later(b, acquire)
	s.say(b.name, "asks for the lock and waits")
	s.pause(4 * time.Second)
	s.ask(a, check)
	s.say(a.name, "checks the lock, still holds it, and is about to write")
	s.signal(a, syscall.SIGSTOP)
	s.follow("")
	s.say("demo", "freezes %s before it writes (SIGSTOP)", a.name)
	s.pause(2 * time.Second)
	s.say("server", "gets no renewals from %s and waits until its lease expires", a.name)
	second := next()
	s.expect(second.Token > first.Token, "token %d of %s is not greater than token %d of %s", second.Token, b.name, first.Token, a.name)
	s.say("server", "the lease of %s has expired: the lock goes to %s", a.name, b.name)
	s.say(b.name, "acquires the lock: token %d, which is greater", second.Token)
	s.pause(2 * time.Second)
	s.write(b)
	s.pause(2 * time.Second)
	late := s.later(a, write) // it reads this when it continues
	s.signal(a, syscall.SIGCONT)
	s.say("demo", "continues %s (SIGCONT)", a.name)
	answer := late()
	s.expect(answer.Stale, "%s accepted the late write", guarded)
	s.say(a.name, "writes, too late, with token %d", first.Token)
	s.say(guarded, "refuses it: %s", answer.Guarded)
	s.pause(2500 * time.Millisecond)
	s.say(plain, "accepts it: what %s wrote is lost", b.name)
	s.pause(2500 * time.Millisecond)
	s.say(a.name, "reports: %s", s.ask(a, loss).Error)
	s.pause(2500 * time.Millisecond)
}

// write lets a worker that holds the lock write both files.
func (s *story) write(w *worker) {
	answer := s.ask(w, write)
	s.expect(answer.Guarded == "", "%s refused a holder: %s", guarded, answer.Guarded)
	s.say(w.name, "writes %s and %s: both accept token %d", guarded, plain, answer.Token)
}

// compare checks and prints what is in the files.
func (s *story) compare() {
	for file, want := range map[string]string{guarded: "worker B", plain: "worker A"} {
		s.expect(strings.Contains(s.content(file), want), "%s contains %q, which is not from %s", file, s.content(file), want)
	}
	s.say(guarded, "contains %q", s.content(guarded))
	s.say(plain, "contains %q", s.content(plain))
	s.say("demo", "a lock alone cannot stop a late write. A guard can: see docs/guards.md")
}

// content returns the text of a file.
func (s *story) content(file string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// say prints a line.
func (s *story) say(who, format string, args ...any) {
	if s.err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(who, fmt.Sprintf(format, args...))
	s.err = s.failed
}

// line prints a line. The mutex is held.
func (s *story) line(who, text string) {
	if s.failed == nil {
		s.failed = s.show(Line{time.Since(s.start), who, text})
	}
}

// follow gives the renewals of a worker a line from now on, and those of no other.
func (s *story) follow(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = name
}

// renewed is called by the server when it has renewed the lease of a worker.
func (s *story) renewed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == s.followed {
		s.line("server", fmt.Sprintf("renews the lease of %s", name))
	}
}

// expect makes the story fail unless ok is true.
func (s *story) expect(ok bool, format string, args ...any) {
	if s.err == nil && !ok {
		s.err = fmt.Errorf(format, args...)
	}
}

// pause gives people time to read.
func (s *story) pause(d time.Duration) {
	if s.err != nil || !s.pauses {
		return
	}
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		s.err = s.ctx.Err()
	}
}

// worker starts a worker.
func (s *story) worker(name string) *worker {
	w, err := startWorker(s.ctx, s.dir, name)
	s.err = errors.Join(s.err, err)
	return w
}

// ask lets a worker take a step and returns its answer.
func (s *story) ask(w *worker, step string) reply { return s.later(w, step)() }

// later lets a worker take a step and returns a function that waits for its answer.
func (s *story) later(w *worker, step string) func() reply {
	if s.err == nil {
		s.err = w.send(step)
	}
	return func() (r reply) {
		if s.err == nil {
			r, s.err = w.receive()
		}
		if step != loss && r.Error != "" {
			s.expect(false, "%s: %s: %s", w.name, step, r.Error)
		}
		return r
	}
}

// signal sends a signal to a worker.
func (s *story) signal(w *worker, sig syscall.Signal) {
	if s.err == nil {
		s.err = w.cmd.Process.Signal(sig)
	}
}
