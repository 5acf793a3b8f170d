package pglock

import (
	"context"
	"sync"
	"time"
)

// lazySession is a session that is opened when it is needed, for whoever asks
// meanwhile. Opening it takes the time it takes: a caller with less waits no longer than it
// likes, and the next one finds it open.
type lazySession struct {
	dial func(context.Context) (*session, error)

	mu      sync.Mutex // guards all below
	current *session
	opening *opening
}

// opening is a dial under way.
type opening struct {
	done chan struct{} // closed when session and err are valid
	s    *session
	err  error
}

// ready reports whether the session is open.
func (l *lazySession) ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current != nil && l.current.Err() == nil
}

// get returns the session, opening one if there is none that lives.
func (l *lazySession) get(ctx context.Context) (*session, error) {
	l.mu.Lock()
	if l.current != nil && l.current.Err() == nil {
		defer l.mu.Unlock()
		return l.current, nil
	}
	o := l.opening
	if o == nil {
		o = &opening{done: make(chan struct{})}
		l.opening = o
		go l.open(o) // ends within dialLimit
	}
	l.mu.Unlock()
	select {
	case <-o.done:
		return o.s, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open dials.
func (l *lazySession) open(o *opening) {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	o.s, o.err = l.dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.err == nil {
		l.current = o.s
	}
	l.opening = nil
	close(o.done)
}

// lockSessions are the sessions of uncontended locks.
type lockSessions struct {
	engine *Engine

	mu    sync.Mutex // guards byTTL
	byTTL map[time.Duration]*lazySession
}

// maxTTLs is how many lock sessions there are at most: TTLs beyond the first few share the
// one of the longest TTL.
const maxTTLs = 4

// pick returns the server's TTL for one that was asked for, and the session of it.
func (l *lockSessions) pick(ttl time.Duration) (time.Duration, *lazySession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for have := range l.byTTL {
		if ttl <= have && have <= ttl+ttl/4 {
			ttl = have
		}
	}
	if l.byTTL[ttl] == nil && len(l.byTTL) >= maxTTLs-1 {
		ttl = l.engine.cfg.MaxTTL
	}
	if l.byTTL[ttl] == nil {
		l.byTTL[ttl] = &lazySession{dial: func(ctx context.Context) (*session, error) { return l.engine.dialLock(ctx, ttl) }}
	}
	return ttl, l.byTTL[ttl]
}

// forget drops a session that has ended.
func (l *lockSessions) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if z := l.byTTL[s.ttl]; z != nil && !s.waiter && !z.busy(s) {
		delete(l.byTTL, s.ttl)
	}
}

// busy reports whether another session than s is, or is being opened, in its place.
func (l *lazySession) busy(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current != s || l.opening != nil
}

// dialLock opens a lock session. Behind a pooler that was allowed, one that does not keep
// connections apart shows when there are two, so the engine's own comes first.
func (e *Engine) dialLock(ctx context.Context, ttl time.Duration) (*session, error) {
	if e.cfg.AllowPooler {
		if _, err := e.own.get(ctx); err != nil {
			return nil, err
		}
	}
	s, err := e.dial(ctx, ttl, false)
	if err == nil {
		e.sweepSoon()
	}
	return s, err
}
