// Package tasks counts the goroutines of an engine, so that its Close can wait for them.
package tasks

import (
	"context"
	"sync"
)

// Group is the calls of an engine that are under way, and the goroutines that they started.
// All methods may be called from many goroutines at once.
type Group struct {
	Closed context.Context // ends with Close

	end context.CancelFunc
	all sync.WaitGroup

	mu   sync.Mutex // guards done, and that all grows from zero before it alone
	done bool       // nothing may begin any more
}

// New returns a group with nothing under way.
func New() *Group {
	g := &Group{}
	g.Closed, g.end = context.WithCancel(context.Background())
	return g
}

// Enter begins a call, which says Leave at the end. It returns false once Close was called.
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

// Go runs a task on a goroutine of its own. It returns false, and runs nothing, once Close was
// called.
func (g *Group) Go(task func()) bool {
	if !g.Enter() {
		return false
	}
	defer g.Leave()
	g.Spawn(task)
	return true
}

// Spawn is Go for calls and tasks under way, for which Close waits: it runs the task in any case.
func (g *Group) Spawn(task func()) { g.all.Go(task) }

// Close lets nothing begin any more, ends Closed, and waits for all that is under way.
func (g *Group) Close() {
	g.mu.Lock()
	g.done = true
	g.mu.Unlock()
	g.end()
	g.all.Wait()
}
