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

// pipelines are the connections for records and rates, which carry no leases. The server executes the
// requests of one connection in order, so a request that waits for a row lock delays those behind
// it. Each connection in use therefore belongs to one key; it is that key's pipeline. Requests that
// only read, which wait for no row, share a pipeline that is always available.
type pipelines struct {
	dialer *dialer
	dial   func(context.Context) (*session, error)

	mu      sync.Mutex // guards all below
	byKey   map[string]*pipeline
	writing int             // pipelines in use, except those that read
	queue   []*pipelineWait // requests that wait for a pipeline, oldest first
	idle    []spare         // the most recently used one is last
	trims   bool            // trim is scheduled
}

// pipeline is a connection in use for a key.
type pipeline struct {
	*opening
	key   string
	reads bool
	users int // requests in flight; guarded by pipelines.mu
}

// pipelineWait is a request that waits for a pipeline.
type pipelineWait struct {
	key   string
	given chan *pipeline // receives the pipeline; buffered
}

// spare is an idle connection.
type spare struct {
	s     *session
	since time.Time
}

const (
	maxPipelines = 6           // how many keys may be written at the same time
	spareTime    = time.Minute // after which idle connections are closed, except one
	// rowWait is how long a request waits for a lock on a row or a table before it is repeated.
	// Meanwhile other requests use the connection.
	rowWait = time.Second
)

// The pipelines of requests that read. The keys of other pipelines have different prefixes.
const (
	readKey = "get"
	listKey = "list"
)

func newPipelines(d *dialer, dial func(context.Context) (*session, error)) *pipelines {
	return &pipelines{dialer: d, dial: dial, byKey: map[string]*pipeline{}}
}

// tableLimit bounds a request of a caller without a shorter deadline, if the server sends something.
const tableLimit = 30 * time.Second

// retryUnavailable repeats a request until it is answered, fails with a permanent error, the time
// is up, or the server has said nothing for Config.Timeout. unsure, if not nil, is called before a
// request is repeated that the server may have executed.
func (p *pipelines) retryUnavailable(ctx context.Context, key string, send func(*session) *pipe.Call, unsure func()) (c *pipe.Call, err error) {
	ctx, cancel := context.WithTimeout(ctx, tableLimit)
	defer cancel()
	err = p.dialer.within(ctx, func(ctx context.Context) error {
		c, err = p.repeat(ctx, key, send, unsure)
		return err
	})
	return c, err
}

// repeat is retryUnavailable until ctx ends.
func (p *pipelines) repeat(ctx context.Context, key string, send func(*session) *pipe.Call, unsure func()) (*pipe.Call, error) {
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
		case gone > 2: // the next connection has found or created the schema each time
			return nil, refuse("the schema fencelock is incomplete; drop it and run fencelock init: %w", err)
		case ctx.Err() != nil || !passing(err):
			return nil, last
		}
	}
}

// call makes one attempt. It returns the call if one was sent.
func (p *pipelines) call(ctx context.Context, key string, send func(*session) *pipe.Call) (*pipe.Call, error) {
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
			_, _ = c.Wait(context.Background()) // the result is not needed
			p.leave(l)
		}()
	}
	if missing(err) {
		p.renew()
	}
	return c, err
}

// renew retires all connections, whose functions may belong to a schema that was dropped. The next
// connection creates the schema.
func (p *pipelines) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.byKey {
		if l.over() && l.s != nil {
			l.s.stale.Store(true)
		}
	}
	for s := p.takeIdle(); s != nil; s = p.takeIdle() {
		go s.part() // ends within cancelLimit
	}
}

// enter joins the pipeline of a key, opens one, or waits for one. A request that writes does not
// overtake those that wait.
func (p *pipelines) enter(ctx context.Context, key string) (*pipeline, error) {
	p.mu.Lock()
	reads := key == readKey || key == listKey
	if reads || len(p.queue) == 0 {
		if l := p.join(key, reads); l != nil {
			p.mu.Unlock()
			return l, nil
		}
	}
	w := &pipelineWait{key, make(chan *pipeline, 1)}
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	select {
	case l := <-w.given:
		return l, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.queue = slices.DeleteFunc(p.queue, func(o *pipelineWait) bool { return o == w })
	p.advance() // it may have blocked the others
	p.mu.Unlock()
	select {
	case l := <-w.given: // given at the same moment
		p.leave(l)
	default:
	}
	return nil, ctx.Err()
}

// join joins the pipeline of a key or opens one. It returns nil if there are too many. p.mu is held.
func (p *pipelines) join(key string, reads bool) *pipeline {
	if l := p.byKey[key]; l != nil && l.usable() {
		l.users++
		return l
	}
	if !reads && p.writing >= maxPipelines {
		return nil
	}
	l := &pipeline{key: key, reads: reads, users: 1}
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

// leave ends a request. The connection of an unused pipeline becomes idle.
func (p *pipelines) leave(l *pipeline) {
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

// advance gives pipelines to the requests that wait. p.mu is held.
func (p *pipelines) advance() {
	for len(p.queue) > 0 {
		l := p.join(p.queue[0].key, false)
		if l == nil {
			return
		}
		p.queue[0].given <- l
		p.queue = slices.Delete(p.queue, 0, 1)
	}
}

// takeIdle returns an idle connection, nil if there is none. p.mu is held.
func (p *pipelines) takeIdle() *session {
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1].s
		p.idle = p.idle[:len(p.idle)-1]
		if last.usable() {
			return last
		}
	}
	return nil
}

// putIdle keeps a connection as idle. p.mu is held.
func (p *pipelines) putIdle(s *session) {
	switch {
	case s == nil:
	case !s.usable():
		go s.part() // ends within cancelLimit
	default:
		p.idle = append(p.idle, spare{s, time.Now()})
		p.trimLater()
	}
}

// trimLater schedules trim if there is more than one idle connection. p.mu is held.
func (p *pipelines) trimLater() {
	if !p.trims && len(p.idle) > 1 {
		p.trims = true
		time.AfterFunc(spareTime, p.trim) // reschedules itself until one is left
	}
}

// trim closes all but one of the connections that have been idle for spareTime.
func (p *pipelines) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trims = false
	for len(p.idle) > 1 && time.Since(p.idle[0].since) >= spareTime {
		go p.idle[0].s.part() // ends within cancelLimit
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.trimLater()
}
