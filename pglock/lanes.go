package pglock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// lanes are the connections by which records and rates are reached. They carry no leases. The
// server answers the requests of one connection in their order, and one that waits for
// somebody's lock on a row holds up those behind it. So a connection is of one key at a time, a
// lane, and requests of other keys use others. Requests that read, which wait for no row, share
// a lane that is always to be had.
type lanes struct {
	dial func(context.Context) (*session, error)

	mu      sync.Mutex // guards all below
	byKey   map[string]*lane
	writing int         // lanes of keys
	queue   []*laneWait // requests that found no lane, oldest first
	idle    []spare     // the one that was used last is the last
	trims   bool        // trim will be called
}

// lane is a connection that is used for a key.
type lane struct {
	*opening
	key   string
	reads bool
	users int // requests under way; guarded by lanes.mu
}

// laneWait is a request that waits for a lane.
type laneWait struct {
	key   string
	given chan *lane // has room for one
}

// spare is a connection that nobody uses.
type spare struct {
	s     *session
	since time.Time
}

const (
	maxLanes  = 6           // how many keys are written at a time
	spareTime = time.Minute // after which spare connections are closed, all but one
	// rowWait is how long a request waits for somebody's lock on a row or a table, before
	// it is made again and others get the connection.
	rowWait = time.Second
)

// The lanes of requests that read. Keys of others begin otherwise.
const (
	readLane = "get"
	listLane = "list"
)

func newLanes(dial func(context.Context) (*session, error)) *lanes {
	return &lanes{dial: dial, byKey: map[string]*lane{}}
}

// tableLimit bounds a call of a caller who has more time.
const tableLimit = 30 * time.Second

// insist makes a request until there is an answer, or an error that does not pass, or the time
// is up; unsure, if not nil, is called before it is made again though the server may have
// carried it out.
func (p *lanes) insist(ctx context.Context, key string, send func(*session) *pipe.Call, unsure func()) (*pipe.Call, error) {
	ctx, cancel := context.WithTimeout(ctx, tableLimit)
	defer cancel()
	var last error
	gone := 0
	for pause := retry.NewBackoff(10*time.Millisecond, time.Second); ; pause.Wait(ctx) {
		c, err := p.call(ctx, key, send)
		if err == nil {
			return c, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if _, refused := serverError(err); c != nil && unsure != nil && (!refused || errors.Is(err, pipe.ErrEnded)) {
			unsure()
		}
		if missing(err) {
			gone++
		}
		switch {
		case gone > 2: // of the schema that the next connection found, or made
			return nil, refuse("the schema fencelock is not complete; drop it, and run fencelock init: %w", err)
		case ctx.Err() != nil || !passing(err):
			return nil, last
		}
	}
}

// call makes a request once. It returns a call if one was made.
func (p *lanes) call(ctx context.Context, key string, send func(*session) *pipe.Call) (*pipe.Call, error) {
	l, err := p.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	s, err := l.session(ctx)
	if err != nil {
		p.leave(l)
		return nil, err
	}
	c := send(s)
	_, err = c.Wait(ctx)
	if c.Answered() {
		p.leave(l)
	} else {
		go func() { // ends when the server has answered or the connection has ended
			_, _ = c.Wait(context.Background()) // nobody asks any more
			p.leave(l)
		}()
	}
	if missing(err) {
		p.renew()
	}
	return c, err
}

// renew gives up all connections, which may not know of a schema that was dropped: the next
// ones make it anew.
func (p *lanes) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.byKey {
		if l.over() && l.s != nil {
			l.s.stale.Store(true)
		}
	}
	for s := p.takeIdle(); s != nil; s = p.takeIdle() {
		go s.Close(errSpare) // ends when the goodbye is sent
	}
}

// enter joins the lane of a key, or begins one, or waits for one: in that order, unless others
// wait for one.
func (p *lanes) enter(ctx context.Context, key string) (*lane, error) {
	p.mu.Lock()
	reads := key == readLane || key == listLane
	if reads || len(p.queue) == 0 {
		if l := p.join(key, reads); l != nil {
			p.mu.Unlock()
			return l, nil
		}
	}
	w := &laneWait{key, make(chan *lane, 1)}
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	select {
	case l := <-w.given:
		return l, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.queue = slices.DeleteFunc(p.queue, func(o *laneWait) bool { return o == w })
	p.advance() // it may have been in the way
	p.mu.Unlock()
	select {
	case l := <-w.given: // in the same instant
		p.leave(l)
	default:
	}
	return nil, ctx.Err()
}

// join joins the lane of a key or begins one; nil if there is no room. p.mu is held.
func (p *lanes) join(key string, reads bool) *lane {
	if l := p.byKey[key]; l != nil && l.usable() {
		l.users++
		return l
	}
	if !reads && p.writing >= maxLanes {
		return nil
	}
	l := &lane{key: key, reads: reads, users: 1}
	p.byKey[key] = l
	if !reads {
		p.writing++
	}
	if s := p.takeIdle(); s != nil {
		l.opening = opened(s)
	} else {
		l.opening = open(p.dial)
	}
	return l
}

// leave ends a request. The connection of a lane that nobody uses goes to the next one.
func (p *lanes) leave(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	if p.byKey[l.key] == l {
		delete(p.byKey, l.key)
	}
	if !l.reads {
		p.writing--
	}
	if l.over() {
		p.putIdle(l.s)
	} else {
		go func() { // ends within dialLimit
			<-l.ready
			p.mu.Lock()
			defer p.mu.Unlock()
			p.putIdle(l.s)
		}()
	}
	p.advance()
}

// advance gives lanes to those who wait for one. p.mu is held.
func (p *lanes) advance() {
	for len(p.queue) > 0 {
		l := p.join(p.queue[0].key, false)
		if l == nil {
			return
		}
		p.queue[0].given <- l
		p.queue = slices.Delete(p.queue, 0, 1)
	}
}

// takeIdle returns a connection that nobody uses, nil if there is none. p.mu is held.
func (p *lanes) takeIdle() *session {
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1].s
		p.idle = p.idle[:len(p.idle)-1]
		if last.fit() {
			return last
		}
	}
	return nil
}

// putIdle keeps a connection for the next one. p.mu is held.
func (p *lanes) putIdle(s *session) {
	switch {
	case s == nil:
	case !s.fit():
		go s.Close(errSpare) // ends when the goodbye is sent
	default:
		p.idle = append(p.idle, spare{s, time.Now()})
		p.trimLater()
	}
}

// trimLater calls trim after a while, if there is more than one spare connection. p.mu is held.
func (p *lanes) trimLater() {
	if !p.trims && len(p.idle) > 1 {
		p.trims = true
		time.AfterFunc(spareTime, p.trim) // comes again until one is left
	}
}

// trim closes spare connections that were not used for a while, all but one.
func (p *lanes) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trims = false
	for len(p.idle) > 1 && time.Since(p.idle[0].since) >= spareTime {
		go p.idle[0].s.Close(errSpare) // ends when the goodbye is sent
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.trimLater()
}
