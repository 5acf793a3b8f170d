package pglock

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patience ends calls when the server says nothing. The server may be slow: any byte that it sends, on any
// connection of the engine, counts.
type patience struct {
	start    time.Time
	received atomic.Int64 // when the server last sent something, in nanoseconds after start
}

// receive records the time at which the server has sent something.
func (p *patience) receive() { p.received.Store(int64(time.Since(p.start))) }

// limit returns a context that ends when ctx does, or when the server has sent nothing for d, counted
// from now. stop must be called.
func (p *patience) limit(ctx context.Context, d time.Duration) (limited context.Context, stop func()) {
	now := time.Now()
	if end, ok := ctx.Deadline(); ok && end.Before(now.Add(d)) {
		return ctx, func() {}
	}
	limited, cancel := context.WithCancel(ctx)
	begun := int64(now.Sub(p.start))
	var mu sync.Mutex // guards timer
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(d, func() {
		since := time.Duration(max(begun, p.received.Load()))
		left := d - (time.Since(p.start) - since)
		if left <= 0 {
			cancel()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if limited.Err() == nil {
			timer.Reset(left)
		}
	})
	return limited, func() {
		cancel()
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
	}
}

// receivingConn is a connection that records when the server sends something.
type receivingConn struct {
	net.Conn
	patience *patience
}

// Read reads from the connection.
func (c receivingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.patience.receive()
	}
	return n, err
}

// within makes a call that does not wait. The call's context ends when the server has said nothing for
// Config.Timeout since the call began; the error is then errSilent, or the one that the call gives as its reason.
func (d *dialer) within(ctx context.Context, call func(ctx context.Context) error) error {
	limited, stop := d.patience.limit(ctx, d.cfg.Timeout)
	defer stop()
	return unanswered(ctx, limited, call(limited))
}

// unanswered returns errSilent for an error that only says that limited has ended and ctx has not.
func unanswered(ctx, limited context.Context, err error) error {
	if err != nil && limited.Err() != nil && ctx.Err() == nil && errors.Is(err, limited.Err()) {
		return errSilent
	}
	return err
}
