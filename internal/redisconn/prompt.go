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

// Gate passes callbacks until it is closed. No callback runs after Close, even if an abandoned f
// still calls Pass.
type Gate struct {
	mu     sync.Mutex // held during a callback; guards closed
	closed bool
}

// Pass runs f unless the gate is closed. It blocks while another callback runs.
func (g *Gate) Pass(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		f()
	}
}

// Close waits for the current callback and closes the gate.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
