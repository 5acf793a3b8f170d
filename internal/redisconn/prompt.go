package redisconn

import (
	"context"
	"sync"
)

// Promptly returns the result of f, or that of failed as soon as ctx ends. The goroutine of an
// abandoned f ends when the client gives up: at the deadline of ctx, or after its dial, read or
// write timeout.
func Promptly[T any](ctx context.Context, f func() T, failed func(error) T) T {
	ctx, cancel := Timed(ctx)
	defer cancel()
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-ctx.Done():
		return failed(ctx.Err())
	}
}

// Callbacks runs callbacks until it is closed. No callback runs after Close, even if an abandoned f
// still calls Run.
type Callbacks struct {
	mu     sync.Mutex // held during a callback; guards closed
	closed bool
}

// Run runs f unless g is closed. It blocks while another callback runs.
func (g *Callbacks) Run(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		f()
	}
}

// Close waits for the current callback and prevents later ones.
func (g *Callbacks) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
