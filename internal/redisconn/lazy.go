package redisconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Lazy is a connection that dials when it is first used, and again after a
// failure: a client of rueidis cannot be made while its server is down, and an engine on
// several servers does without some. All methods may be called from many goroutines at
// once.
type Lazy struct {
	dial func() (rueidis.Client, error)

	mu      sync.Mutex // guards all below
	client  rueidis.Client
	conn    Conn          // nil until a dial succeeded
	dialing chan struct{} // closed at the end of a dial; nil when there is none
	err     error         // of the last dial
	until   time.Time     // before then that error stands
	pause   time.Duration
	closed  bool
}

var _ Conn = (*Lazy)(nil)

// NewLazy returns a connection that gets its client from dial. It does no I/O.
func NewLazy(dial func() (rueidis.Client, error)) *Lazy { return &Lazy{dial: dial} }

// A failed dial is not repeated before the first of these is over, and each further
// one twice as long, up to the second.
const (
	firstDialPause = 20 * time.Millisecond
	lastDialPause  = time.Second
)

var errLazyClosed = errors.New("the connection was closed")

// get returns the connection, dialing if need be. Who comes while another dials
// waits for that one.
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
			go l.connect() // ends with the dial, whose limit is the client's
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

// connect dials, and tells those who wait. A failure stands for a pause, so that a server
// that is down is not dialed by every request; a client that comes after Close is closed.
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

// Close closes the client, if there is one. Calls under way, and later ones,
// fail.
func (l *Lazy) Close() {
	l.mu.Lock()
	client := l.client
	l.closed, l.client, l.conn = true, nil, nil
	l.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// Eval runs scripts as [Conn] says.
func (l *Lazy) Eval(ctx context.Context, calls []Call) []Reply {
	conn, err := l.get(ctx)
	if err != nil {
		return Failures(len(calls), err)
	}
	return conn.Eval(ctx, calls)
}

// Subscribe subscribes as [Conn] says.
func (l *Lazy) Subscribe(ctx context.Context, channel string, ready func(), message func(text string)) error {
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return conn.Subscribe(ctx, channel, ready, message)
}

// Scan scans as [Conn] says.
func (l *Lazy) Scan(ctx context.Context, match string, fn func(keys []string) error) error {
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return conn.Scan(ctx, match, fn)
}

// Each asks every master as [Conn] says.
func (l *Lazy) Each(ctx context.Context, args ...string) ([]Answer, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Each(ctx, args...)
}

// Cluster reports false until the first dial has succeeded: it does no I/O.
func (l *Lazy) Cluster() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && l.conn.Cluster()
}
