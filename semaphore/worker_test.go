//go:build unix

package semaphore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/semaphore"
)

// envOrders tells a child process what to do.
const envOrders = "FENCELOCK_SEMAPHORE_ORDERS"

// orders are what a worker is to do.
type orders struct {
	Store  store
	Book   string        // the file in which it writes what it does
	Weight int           // of each permit
	Work   time.Duration // how long it keeps a permit
	Rounds int           // how many permits it takes; 0 means until it is told to stop
	TTL    time.Duration // of each permit
}

// worker is a process that takes permits: this test binary once more.
type worker struct {
	cmd  *exec.Cmd
	stop io.Closer // told to stop when this is closed
}

// hire starts a worker, which is killed at the end of the test.
func hire(t *testing.T, o orders) *worker {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envOrders+"="+string(text))
	cmd.Stderr = os.Stderr
	w := &worker{cmd: cmd}
	if w.stop, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			w.kill()
		}
	})
	return w
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// kill ends the worker as kill -9 does, and returns when it is gone.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	_ = w.cmd.Wait()         // it was killed
}

// dismiss lets the worker finish its round, and end.
func (w *worker) dismiss() { _ = w.stop.Close() }

// await waits until the worker has ended by itself.
func (w *worker) await(t *testing.T) {
	t.Helper()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("worker %d: %v", w.pid(), err)
	}
}

// work does what the orders say. In an ordinary run it returns at once; in a worker
// it ends the process.
func work() {
	text, ok := os.LookupEnv(envOrders)
	if !ok {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.obey()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// obey takes permits until the parent says stop, or is gone.
func (o orders) obey() error {
	told, cancel := context.WithCancel(context.Background())
	go func() { // ends with its parent's end of the pipe, or with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	engine, err := o.Store.open()
	if err != nil {
		return err
	}
	books, err := os.OpenFile(o.Book, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	locks := fencelock.New(engine, &fencelock.Config{TTL: o.TTL})
	joins := sync.OnceFunc(func() { _ = note(books, "waits", os.Getpid()) })
	s := semaphore.New(locks.With(fencelock.Options{OnWait: func(fencelock.WaitInfo) { joins() }}), name, size)
	for round := 0; told.Err() == nil && (o.Rounds == 0 || round < o.Rounds); round++ {
		permit, err := s.Acquire(told, o.Weight)
		switch {
		case told.Err() != nil:
			if err == nil {
				err = permit.Release()
			}
			return ignore(err, context.Canceled)
		case err != nil:
			return err
		}
		if err := o.use(books, permit); err != nil {
			return err
		}
	}
	return nil
}

// use writes down that the permit stands and, before it is given back, that it ends.
func (o orders) use(books io.Writer, permit *semaphore.Permit) error {
	if permit.Err() != nil {
		return nil
	}
	if err := note(books, "+", os.Getpid(), permit.Weight(), permit.Token()); err != nil {
		return err
	}
	select {
	case <-time.After(o.Work):
	case <-permit.Context().Done():
	}
	end := "-"
	if permit.Err() != nil {
		end = "lost"
	}
	if err := note(books, end, os.Getpid(), permit.Weight(), permit.Token()); err != nil {
		return err
	}
	return ignore(permit.Release(), fencelock.ErrNotHeld)
}

// ignore returns err, unless it is the one that may be.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
