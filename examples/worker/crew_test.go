//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A crew is several worker processes, of which one is disturbed now and then. One
// that does not end well is replaced.
type crew struct {
	size      int
	every     time.Duration
	args      []string          // the command of a worker
	prepare   func(*exec.Cmd)   // called before it starts
	out       io.Writer         // gets what the workers say
	disturb   func(*os.Process) // what happens to one of them
	disturbed int               // how often it happened

	mu      sync.Mutex // guards running, over, and calls of out.Write
	running map[int]*os.Process
	over    bool // a worker found the queue empty
}

// run returns when every worker has found the queue empty, or ctx ends.
func (c *crew) run(ctx context.Context) error {
	c.running, c.over = map[int]*os.Process{}, false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var places sync.WaitGroup
	for range c.size {
		places.Go(func() { // ends with the work, with ctx, or when a worker cannot be started
			for ctx.Err() == nil {
				done, err := c.work(ctx)
				if err != nil {
					cancel(err)
				}
				if done || err != nil {
					return
				}
				_ = sleep(ctx, 20*time.Millisecond) // or one that cannot begin is replaced too often
			}
		})
	}
	home := make(chan struct{})
	go func() { places.Wait(); close(home) }()
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-home:
			return context.Cause(ctx)
		case <-tick.C:
			if p := c.any(); p != nil {
				c.disturb(p)
				c.disturbed++
			}
		}
	}
}

// work runs one worker to its end, and reports whether it found the queue empty.
func (c *crew) work(ctx context.Context) (done bool, err error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Stdout = &lines{crew: c}
	cmd.Stderr = cmd.Stdout
	c.prepare(cmd)
	if err := cmd.Start(); err != nil {
		return false, err
	}
	c.mu.Lock()
	c.running[cmd.Process.Pid] = cmd.Process
	c.mu.Unlock()
	done = cmd.Wait() == nil
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, cmd.Process.Pid)
	c.over = c.over || done
	return done, nil
}

// any returns one of the processes, nil if there is none or they may all go home.
func (c *crew) any() *os.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	n := rand.N(max(1, len(c.running)))
	for _, p := range c.running {
		if n--; n < 0 {
			return p
		}
	}
	return nil
}

// lines lets many processes write to one place, a line at a time.
type lines struct {
	crew *crew
	rest []byte // the beginning of a line
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	l.crew.mu.Lock()
	defer l.crew.mu.Unlock()
	_, err := l.crew.out.Write(l.rest[:end])
	l.rest = l.rest[end:]
	return len(b), err
}
