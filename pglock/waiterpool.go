package pglock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// errCrowded is returned if all connections for waiters are in use.
var errCrowded = errors.New("all connections for waiters are in use; raise MaxWaiters")

// waiterPool manages the connections of waiting requests.
type waiterPool struct {
	dialer *dialer
	slots  chan struct{} // counts connections in use

	mu   sync.Mutex // guards idle
	idle []*session // available for the next requests
}

// get returns a connection to wait on: an idle one with the right TTL, or a new one.
func (p *waiterPool) get(ctx context.Context, ttl time.Duration) (*session, error) {
	select {
	case p.slots <- struct{}{}:
	default:
		return nil, errCrowded
	}
	if s := p.take(ttl); s != nil {
		return s, nil
	}
	o := open(func(ctx context.Context) (*session, error) { return p.dialer.dial(ctx, ttl, true) })
	select {
	case <-o.ready:
		if o.err != nil {
			<-p.slots
		}
		return o.s, o.err
	case <-ctx.Done():
		go func() { // ends within dialLimit
			if <-o.ready; o.err == nil {
				p.put(o.s)
			} else {
				<-p.slots
			}
		}()
		return nil, ctx.Err()
	}
}

// take returns an idle connection. If there is none with this TTL, it may close another one, so
// that there are never more than MaxWaiters.
func (p *waiterPool) take(ttl time.Duration) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(s *session) bool { return s.Err() != nil })
	for i, s := range slices.Backward(p.idle) {
		if s.ttl == ttl {
			p.idle = slices.Delete(p.idle, i, i+1)
			return s
		}
	}
	if n := len(p.idle); n > 0 && n+len(p.slots) > cap(p.slots) {
		go p.idle[0].part() // ends within cancelLimit
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	return nil
}

var errSpare = errors.New("the connection was closed because it was not needed")

// put keeps a connection without locks for the next request. The server ends it when it has been
// idle for its TTL.
func (p *waiterPool) put(s *session) {
	if s.Err() == nil {
		p.mu.Lock()
		p.idle = append(p.idle, s)
		p.mu.Unlock()
	}
	<-p.slots
}
