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
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/internal/reexec"
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
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := serve(ctx, filepath.Join(dir, socket))
	if err != nil {
		return err
	}
	defer stop()
	s := &story{ctx: ctx, dir: dir, pauses: pauses, show: show, start: time.Now()}
	a, b := s.worker("worker A"), s.worker("worker B")
	if s.err == nil {
		context.AfterFunc(ctx, func() { _, _ = a.Process().Kill(), b.Process().Kill() }) // also one that is frozen
		s.play(a, b)
		s.compare()
	}
	for _, w := range s.workers {
		w.Kill()
	}
	cancel() // ends the calls of the server
	return s.err
}

// prefix begins the names of the directories of demos.
const prefix = "fencelock-demo-"

// sweep removes the directories of demos that this user has killed: those below parent where nobody
// listens any more. One that is younger than a minute may not listen yet. Another user could keep
// root in a directory by filling it again and again, or lead it to another socket.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		conn, err := net.DialTimeout("unix", filepath.Join(dir, socket), time.Second)
		if err == nil {
			conn.Close()
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(dir)
		}
	}
}

// story is a run of the demo. After the first error, its methods do nothing.
type story struct {
	ctx    context.Context
	dir    string
	pauses bool
	show   func(Line) error
	start  time.Time
	err    error // the first one

	workers []*worker
}

// worker starts a worker.
func (s *story) worker(name string) *worker {
	w, err := reexec.Start(jobName, orders{name, s.dir})
	if err != nil {
		s.fail(err)
		return nil
	}
	s.workers = append(s.workers, &worker{w, name})
	return s.workers[len(s.workers)-1]
}

// play takes the steps.
func (s *story) play(a, b *worker) {
	s.say("demo", "starts two workers, processes %d and %d, that write the same files under one lock", a.Process().Pid, b.Process().Pid)
	s.say("demo", "the lock is a lease: it expires %v after the last renewal", lease)
	s.say("demo", "%s checks fencing tokens, %s does not", guarded, plain)
	s.pause(3 * time.Second)
	s.step(a) // acquires the lock
	s.step(a) // writes
	s.pause(1500 * time.Millisecond)
	s.ask(b)
	s.say(b.name, "asks for the lock and waits")
	s.pause(4 * time.Second)
	s.step(a) // checks the lock
	s.signal(a, syscall.SIGSTOP)
	s.say("demo", "freezes %s before it writes (SIGSTOP)", a.name)
	s.pause(2 * time.Second)
	s.say("server", "gets no renewals from %s and waits until its lease expires", a.name)
	acquired := s.answer(b)
	s.say("server", "the lease of %s has expired: the lock goes to %s", a.name, b.name)
	s.say(b.name, "%s, which is greater", acquired)
	s.pause(2 * time.Second)
	s.step(b) // writes
	s.pause(2 * time.Second)
	s.ask(a) // it reads this when it continues
	s.signal(a, syscall.SIGCONT)
	s.say("demo", "continues %s (SIGCONT)", a.name)
	refusal := s.answer(a)
	s.say(a.name, "writes, too late, with its old token")
	s.say(guarded, "refuses it: %s", refusal)
	s.pause(2500 * time.Millisecond)
	s.say(plain, "accepts it: what %s wrote is lost", b.name)
	s.pause(2500 * time.Millisecond)
	s.step(a) // reports the loss
	s.pause(2500 * time.Millisecond)
}

// compare prints what is in the files, and checks it.
func (s *story) compare() {
	for _, file := range []struct{ name, from string }{{guarded, "worker B"}, {plain, "worker A"}} {
		text, err := os.ReadFile(filepath.Join(s.dir, file.name))
		if err == nil && !strings.Contains(string(text), file.from) {
			err = fmt.Errorf("%s contains %q, which is not from %s", file.name, text, file.from)
		}
		s.fail(err)
		s.say(file.name, "contains %q", text)
	}
	s.say("demo", "a lock alone cannot stop a late write. A guard can: see docs/guards.md")
}

// fail makes the story fail if err is not nil.
func (s *story) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// say prints a line.
func (s *story) say(who, format string, args ...any) {
	if s.err == nil {
		s.err = s.show(Line{time.Since(s.start), who, fmt.Sprintf(format, args...)})
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

// step lets a worker take its next step, and prints its answer.
func (s *story) step(w *worker) {
	s.ask(w)
	s.say(w.name, "%s", s.answer(w))
}

// ask tells a worker to take its next step. A frozen worker reads that when it continues.
func (s *story) ask(w *worker) { w.Say("") }

// answer returns what a worker has done in its step.
func (s *story) answer(w *worker) (text string) {
	if s.err == nil {
		if text = w.Hear(); text == "" {
			s.err = fmt.Errorf("%s has ended", w.name)
		}
	}
	return text
}

// signal sends a signal to a worker.
func (s *story) signal(w *worker, sig syscall.Signal) {
	if s.err == nil {
		s.err = w.Process().Signal(sig)
	}
}
