package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock, which all processes share and which runs while they are
// frozen.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// An event is what a worker reports.
type event struct {
	What string        // acquired, lost or failed
	At   time.Duration // by now
	Last time.Duration // lost: when the library last reported the lock as held
	Text string        // failed: the error
}

// work is a worker's process: it acquires the name, watches the hold until its loss or the end of
// its input, and reports both.
func work(args []string) error {
	var s spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	c, err := s.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process at the latest
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	h, err := insist(ctx, c, args[1])
	if err != nil {
		return out.Encode(event{What: "failed", At: now(), Text: err.Error()})
	}
	if err := out.Encode(event{What: "acquired", At: now()}); err != nil {
		return err
	}
	if lost, ok := watch(ctx, h); ok {
		return out.Encode(lost)
	}
	_ = h.release()
	c.close()
	return nil
}

// insist acquires the name, and tries again if the server fails meanwhile.
func insist(ctx context.Context, c client, name string) (hold, error) {
	for {
		h, err := c.acquire(ctx, name)
		if err == nil || ctx.Err() != nil {
			return h, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watch asks each millisecond whether the lock is held, as a holder does before each step, until it
// is lost or ctx ends.
func watch(ctx context.Context, h hold) (lost event, ok bool) {
	last := now()
	for tick := time.NewTicker(time.Millisecond); ; {
		asked := now()
		if h.err() != nil {
			return event{What: "lost", At: now(), Last: last}, true
		}
		last = asked
		select {
		case <-ctx.Done():
			return event{}, false
		case <-tick.C:
		}
	}
}

// A worker is a process with one client.
type worker struct {
	cmd *exec.Cmd
	in  io.Closer

	mu     sync.Mutex
	events map[string]event // guarded by mu
	more   chan struct{}    // guarded by mu; closed and replaced with each event
}

// worker starts a process that acquires name. It is killed at the end of the scenario.
func (b *bed) worker(s spec, name string) *worker {
	text, err := json.Marshal(s)
	b.must(err)
	w := &worker{events: map[string]event{}, more: make(chan struct{})}
	w.cmd = exec.Command(os.Args[0], "worker", string(text), name)
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.in, err = w.cmd.StdinPipe()
	b.must(err)
	out, err := w.cmd.StdoutPipe()
	b.must(err)
	b.must(w.cmd.Start())
	read := make(chan struct{})
	go func() { // ends with the process
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				w.add(e)
			}
		}
	}()
	b.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-read
		_ = w.cmd.Wait()
	})
	return w
}

func (w *worker) add(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.What] = e
	close(w.more)
	w.more = make(chan struct{})
}

// wait returns the event with a name, or false after a time.
func (w *worker) wait(what string, most time.Duration) (event, bool) {
	timeout := time.After(most)
	for {
		w.mu.Lock()
		e, ok := w.events[what]
		more := w.more
		w.mu.Unlock()
		if ok {
			return e, true
		}
		select {
		case <-more:
		case <-timeout:
			return event{}, false
		}
	}
}

// acquired waits until the worker has the lock.
func (b *bed) acquired(w *worker, most time.Duration) event {
	e, ok := w.wait("acquired", most)
	if !ok {
		b.Fatalf("a worker did not get the lock within %v (%v)", most, w.failure())
	}
	return e
}

func (w *worker) failure() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events["failed"].Text
}

// freeze stops the process as SIGSTOP does, and returns when it has stopped.
func (w *worker) freeze(b *bed) {
	b.must(w.cmd.Process.Signal(syscall.SIGSTOP))
	for range 1000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
		b.must(err)
		if _, after, ok := strings.Cut(string(text), ") "); ok && strings.HasPrefix(after, "T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.Fatal("a worker does not stop")
}

func (w *worker) thaw(b *bed) { b.must(w.cmd.Process.Signal(syscall.SIGCONT)) }
