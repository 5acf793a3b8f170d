package redisconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Lazy is a connection that dials on first use, and again after a failure. A rueidis client cannot
// be created while its server is down, but an engine on several servers must start without some of
// them. It is safe for concurrent use.
type Lazy struct {
	dial func() (rueidis.Client, error)

	mu      sync.Mutex // guards the fields below
	client  rueidis.Client
	conn    Conn          // nil until a dial has succeeded
	dialing chan struct{} // closed at the end of a dial; nil if there is none
	err     error         // of the last dial
	until   time.Time     // the time before which err is returned without a dial
	pause   time.Duration
	closed  bool
}

var _ Conn = (*Lazy)(nil)

// NewLazy returns a connection that gets its client from dial. It does no I/O.
func NewLazy(dial func() (rueidis.Client, error)) *Lazy { return &Lazy{dial: dial} }

// The pauses after failed dials. They double from the first to the last.
const (
	firstDialPause = 20 * time.Millisecond
	lastDialPause  = time.Second
)

var errLazyClosed = errors.New("the connection was closed")

// get returns the connection and dials if necessary. Concurrent callers share one dial.
func (l *Lazy) get(ctx context.Context) (Conn, error) {
	for {
		l.mu.Lock()
		switch {
		case l.closed:
			l.mu.Unlock()
			return nil, errLazyClosed
		case l.conn != nil:
			defer l.mu.Unlock()
			return l.conn, nil
		case l.dialing == nil && time.Now().Before(l.until):
			defer l.mu.Unlock()
			return nil, l.err
		case l.dialing == nil:
			l.dialing = make(chan struct{})
			go l.connect() // ends with the dial, which the client bounds
		}
		done := l.dialing
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, fmt.Errorf("dialing: %w", ctx.Err())
		}
	}
}

// connect dials and wakes the waiting callers. After a failure the error is returned for a pause,
// so that not every request dials a server that is down. A client that arrives after Close is
// closed.
func (l *Lazy) connect() {
	client, err := l.dial() // without mu: it may take as long as the client allows
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialing)
	l.dialing = nil
	switch {
	case err != nil:
		l.pause = min(max(2*l.pause, firstDialPause), lastDialPause)
		l.err, l.until = err, time.Now().Add(l.pause)
	case l.closed:
		client.Close()
	default:
		l.client, l.conn = client, Rueidis(client)
	}
}

// Close closes the client if there is one. Current and later calls fail.
func (l *Lazy) Close() {
	l.mu.Lock()
	client := l.client
	l.closed, l.client, l.conn = true, nil, nil
	l.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// Eval implements Conn.
func (l *Lazy) Eval(ctx context.Context, calls []Call) []Reply {
	conn, err := l.get(ctx)
	if err != nil {
		return Failures(len(calls), err)
	}
	return conn.Eval(ctx, calls)
}

// Subscribe implements Conn.
func (l *Lazy) Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error {
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return conn.Subscribe(ctx, channel, ready, message)
}

// Scan implements Conn.
func (l *Lazy) Scan(ctx context.Context, limit time.Duration, match string, fn func(keys []string) error) error {
	conn, err := l.get(Within(ctx, limit))
	if err != nil {
		return err
	}
	return conn.Scan(ctx, limit, match, fn)
}

// Each implements Conn.
func (l *Lazy) Each(ctx context.Context, args ...string) ([]Answer, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Each(ctx, args...)
}

// Cluster implements Conn. It returns false until the first dial has succeeded.
func (l *Lazy) Cluster() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && l.conn.Cluster()
}
