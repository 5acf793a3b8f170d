package redisconn

import (
	"context"
	"sync"
)

// Promptly returns what f returns, or what failed returns as soon as ctx ends. The
// goroutine of an abandoned f ends when the client below gives up: at the
// deadline of ctx, or after its dial, read or write timeout.
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

// A Gate lets callbacks through until it is closed: none runs after that, though
// an abandoned f may still call.
type Gate struct {
	mu     sync.Mutex // held during a callback; guards closed
	closed bool
}

// Pass runs f, unless the gate is closed. It blocks while another callback runs.
func (g *Gate) Pass(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		f()
	}
}

// Close closes the gate, once a callback under way is over.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
