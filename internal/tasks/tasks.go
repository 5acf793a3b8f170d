// Package tasks tracks the calls and goroutines of an engine, so that its Close can wait for them.
package tasks

import (
	"context"
	"sync"
	"time"
)

// Group is the calls of an engine in progress, and the goroutines that they started. It is safe for
// concurrent use.
type Group struct {
	Closed context.Context // ends with Close

	end context.CancelFunc
	all sync.WaitGroup

	mu   sync.Mutex // guards done, and that all does not grow from zero after it
	done bool       // nothing may begin any more
}

// New returns an empty group.
func New() *Group {
	g := &Group{}
	g.Closed, g.end = context.WithCancel(context.Background())
	return g
}

// Enter begins a call, which must end with Leave. After Close it returns false.
func (g *Group) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.done {
		g.all.Add(1)
	}
	return !g.done
}

// Leave ends a call.
func (g *Group) Leave() { g.all.Done() }

// Go runs a task in a new goroutine. After Close it returns false and runs nothing.
func (g *Group) Go(task func()) bool {
	if !g.Enter() {
		return false
	}
	defer g.Leave()
	g.Spawn(task)
	return true
}

// Spawn is Go for callers inside a call or task. It always runs the task, because Close waits for
// them.
func (g *Group) Spawn(task func()) { g.all.Go(task) }

// Refuse prevents new calls and tasks. Those in progress continue.
func (g *Group) Refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
}

// Refuses reports whether Refuse or Close was called.
func (g *Group) Refuses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}

// Close prevents new calls and tasks, cancels Closed, and waits for those in progress.
func (g *Group) Close() { g.CloseAfter(0) }

// CloseAfter is Close that cancels Closed only after d, if calls or tasks are still in progress then.
func (g *Group) CloseAfter(d time.Duration) {
	g.Refuse()
	if d > 0 {
		done := make(chan struct{})
		go func() { // ends with the last call or task
			g.all.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(d):
		}
	}
	g.end()
	g.all.Wait()
}
