package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// order is what a worker process gets: which contestant to be, and what to do.
type order struct {
	Suite, Contestant, Addr string
	Job                     string // a key of jobs
	Name                    string // of the lock, where it matters
	Clients, Each           int    // clients to open, and goroutines or locks of each
	Index, Of, Waiters      int    // which process it is, of how many, and how many wait in it
}

// jobs are what worker processes do, between their first line of output, with
// which they say that they are ready, and the end of their input.
var jobs = map[string]func(contestant, order, io.Reader) error{
	"wait": waitJob,
	"turn": turnJob,
	"idle": idleJob,
	"hold": holdJob,
	"load": loadJob,
}

// work is the main function of a worker process.
func work(args []string) error {
	var o order
	if err := json.Unmarshal([]byte(strings.Join(args, "")), &o); err != nil {
		return err
	}
	known := slices.Concat(suites, scales)
	i := slices.IndexFunc(known, func(s suite) bool { return s.name == o.Suite })
	if i < 0 || jobs[o.Job] == nil {
		return fmt.Errorf("no such order: %+v", o)
	}
	c, err := known[i].find(o.Contestant)
	if err != nil {
		return err
	}
	return jobs[o.Job](c, o, os.Stdin)
}

// say writes one line to the process that gave the order.
func say(what any) error { return json.NewEncoder(os.Stdout).Encode(what) }

// worker is a process at work.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// hire starts a worker and waits until it is ready.
func (a *arena) hire(o order) (*worker, error) {
	o.Suite, o.Addr = a.suite.name, a.server.addr()
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(self, "worker", string(text))}
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = json.NewDecoder(bufio.NewReader(out))
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	var ready string
	if err := w.hear(&ready); err != nil {
		w.dismiss()
		return nil, fmt.Errorf("%s did not get ready to %s: %w", o.Contestant, o.Job, err)
	}
	return w, nil
}

// tell writes one line to the worker.
func (w *worker) tell(what any) error { return json.NewEncoder(w.in).Encode(what) }

// hear reads one line from the worker.
func (w *worker) hear(what any) error { return w.out.Decode(what) }

// dismiss ends the worker: by itself, or with force after a while.
func (w *worker) dismiss() {
	_ = w.in.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	_ = w.cmd.Wait()
}

func dismissAll(workers []*worker) {
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.dismiss)
	}
	all.Wait()
}

// untilEOF returns a context that ends with the input.
func untilEOF(in io.Reader) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the input, which ends with the process that gave the order
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return ctx
}
