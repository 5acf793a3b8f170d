package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/words"
)

const (
	// maxFlights calls are under way before errands wait for one another: one that
	// the server works on, one on its way there and one on its way back.
	maxFlights = 3
	// maxGathered errands go into one script, so that it does not block the server.
	maxGathered = 64
	// gatherDelay is how long an errand waits for a call to come back, for the sake
	// of networks that take longer.
	gatherDelay = time.Millisecond
)

// gatherer lets errands that come while others are under way wait for these, and
// then go together: the cost of a script is that of its call, for the most part.
// An errand that is alone does not wait.
type gatherer struct {
	delay time.Duration

	mu      sync.Mutex // guards all below
	flights int
	waiting []*errand
	armed   bool // depart will be called
}

// errand is an acquire or a release of the common kind.
type errand struct {
	keys  keys
	args  []string // of gather.lua
	limit time.Duration
	done  chan verdict // gets the answer, once
}

// verdict is what became of a gathered errand: a letter of gather.lua and the
// server's time, or an error.
type verdict struct {
	letter byte
	now    string
	late   int64 // until when an acquire may still be served
	err    error
}

// refused is the letter of an errand whose script the server refused, perhaps for
// the sake of another one.
const refused = 'x'

// together reports whether errands may share a script. On a Cluster their keys
// lie in different slots, and replicas are waited for call by call.
func (e *Engine) together() bool { return !e.conn.Cluster() && e.cfg.MinReplicas == 0 }

// board lets a call go at once if few are under way, and land must follow it.
func (g *gatherer) board() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flights >= maxFlights {
		return false
	}
	g.flights++
	return true
}

// send does an errand together with others.
func (e *Engine) send(ctx context.Context, er *errand) verdict {
	er.done = make(chan verdict, 1)
	if e.gather.queue(er, e.depart) {
		e.depart()
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	select {
	case v := <-er.done:
		return v
	case <-ctx.Done():
		var late int64
		if !e.gather.leave(er) {
			_, late = e.until(context.Background(), er.limit)
		}
		return verdict{err: e.unreached(ctx.Err()), late: late}
	}
}

// queue lets an errand wait for a call to come back, until depart. It reports
// whether there is nothing to wait for: so many wait that they fill a script, or
// all calls have come back meanwhile.
func (g *gatherer) queue(er *errand, depart func()) (now bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, er)
	now = len(g.waiting) >= maxGathered || g.flights == 0
	if !now && !g.armed {
		g.armed = true
		time.AfterFunc(g.delay, depart)
	}
	return now
}

// leave takes an errand away, and reports whether it was not sent yet.
func (g *gatherer) leave(er *errand) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.waiting)
	g.waiting = slices.DeleteFunc(g.waiting, func(o *errand) bool { return o == er })
	return len(g.waiting) < n
}

// next returns the errands that go together now; without any, the flight is over.
func (g *gatherer) next() []*errand {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGathered)
	if n == 0 {
		g.flights--
		return nil
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return batch
}

// depart lets those who wait go although no call has come back.
func (e *Engine) depart() {
	g := &e.gather
	g.mu.Lock()
	g.armed = false
	g.flights++
	g.mu.Unlock()
	e.land()
}

// land ends a call that went at once, or lets it go on for those who wait.
func (e *Engine) land() {
	if batch := e.gather.next(); batch != nil {
		e.shuttle(batch)
	}
}

// shuttle does batch after batch until nobody waits.
func (e *Engine) shuttle(batch []*errand) {
	task := func() { // ends when nobody waits; each batch has an attempt limit
		for ; batch != nil; batch = e.gather.next() {
			e.fly(batch)
		}
	}
	e.mu.Lock()
	started := e.spawn(task)
	e.mu.Unlock()
	if !started {
		task()
	}
}

// fly does a batch of errands in one script, and tells each what became of it.
func (e *Engine) fly(batch []*errand) {
	c := Call{Script: gatherScript, Keys: make([]string, 0, 2*len(batch)), Args: make([]string, 3, 3+3*len(batch))}
	letters, limit := make([]byte, len(batch)), batch[0].limit
	for i, er := range batch {
		if letters[i] = 'a'; len(er.args) == 1 {
			letters[i] = 'r'
		}
		c.Keys = append(c.Keys, er.keys.lock, er.keys.fence)
		c.Args = append(c.Args, er.args...)
		limit = min(limit, er.limit)
	}
	until, late := e.until(context.Background(), limit)
	c.Args[0], c.Args[1], c.Args[2] = e.retention, string(letters), until
	text, err := e.eval(within(context.Background(), limit), c)
	in := words.Words{Rest: text}
	now := in.Next()
	if err == nil && len(in.Rest) != len(batch) {
		err = malformed(text)
	}
	_, answered := serverError(err)
	for i, er := range batch {
		switch {
		case err == nil:
			er.done <- verdict{letter: in.Rest[i], now: now}
		case answered:
			er.done <- verdict{letter: refused}
		default:
			er.done <- verdict{err: err, late: late}
		}
	}
}
