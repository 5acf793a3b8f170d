package redislock

import (
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/retry"
)

// maxTouch is how long a waiting client may stay silent.
const maxTouch = 20 * time.Second

// group is the waiters of one name in this process. One goroutine speaks to the
// server for all of them.
type group struct {
	name string
	keys keys
	poke chan struct{} // due or lost changed

	// Guarded by Engine.mu.
	waiters []*waiter
	due     time.Time // when the server is to be asked next
	by      time.Time // when it has to hear of us at the latest
	lost    bool      // the server may have forgotten our requests
	sample  sample    // of the last answer
}

func (g *group) remove(w *waiter) {
	g.waiters = slices.DeleteFunc(g.waiters, func(o *waiter) bool { return o == w })
	if len(g.waiters) == 0 {
		g.nudge()
	}
}

func (g *group) nudge() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// advance makes the next look happen no later than after.
func (g *group) advance(after time.Duration) {
	if at := time.Now().Add(after); g.due.IsZero() || at.Before(g.due) {
		g.due = at
		g.nudge()
	}
}

// postpone makes the next look happen after so long, earlier if the server might
// take us for dead meanwhile.
func (g *group) postpone(after time.Duration) {
	g.due = time.Now().Add(after)
	if g.by.Before(g.due) {
		g.due = g.by
	}
	g.nudge()
}

// heard notes that the server has heard of us.
func (g *group) heard() { g.by = time.Now().Add(min(g.shortest(), maxTouch)) }

// join adds a queued request to its group, unless the engine was closed. A grant
// may already have come. Close waits for the request.
func (e *Engine) join(w *waiter, a answer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return false
	}
	e.tasks.Add(1)
	g := e.groups[w.req.Name]
	if g == nil {
		g = &group{name: w.req.Name, keys: w.keys, poke: make(chan struct{}, 1)}
		e.groups[w.req.Name] = g
		e.spawn(func() { e.attend(g) }) // ends when nobody of the group waits, or with Close
		e.note(nameindex.Noted{Name: g.name, Life: waitLife})
	}
	g.waiters = append(g.waiters, w)
	g.sample, w.sample = a.sample, a.sample
	g.heard()
	w.wake = make(chan struct{}, 1)
	w.queued = w.news == nil
	g.advance(pause(seen{position: a.position, outlook: a.outlook}, w.req.TTL))
	if !w.look.IsZero() {
		g.advance(time.Until(w.look))
	}
	return true
}

// requeue puts a request back whose grant ran out before it was taken.
func (e *Engine) requeue(w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.queued = w.news == nil
	if g := e.groups[w.req.Name]; g != nil {
		g.lost = true
		g.advance(0)
	}
}

// rejoin puts all requests back: the server may have passed over them.
func (e *Engine) rejoin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range e.groups {
		g.lost = true
		g.sample = sample{} // another server's clock may answer next
		for _, w := range g.waiters {
			w.sample = sample{}
		}
		g.advance(0)
	}
}

// lookAfter is asked for by a client that granted the lock to another: it is in
// good hands until then. A request that stands in the queue already, but has not
// read that it does, keeps it in mind.
func (e *Engine) lookAfter(name string, after time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	after = max(after, 0)
	if g := e.groups[name]; g != nil {
		g.postpone(after + lag(g.shortest()))
		return
	}
	for _, w := range e.waiters {
		if w.req.Name == name {
			w.look = time.Now().Add(after + lag(w.req.TTL))
		}
	}
}

// begun is a local time before a grant, if there is telling: by the last look at
// the queue, or, if others have joined since the grant, by the request's own answer.
func (e *Engine) begun(w *waiter, at int64) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.groups[w.req.Name]; g != nil {
		if begin := g.sample.begin(at, w.asked); !begin.IsZero() {
			return begin
		}
	}
	return w.sample.begin(at, w.asked)
}

// shortest is the shortest TTL among the requests.
func (g *group) shortest() time.Duration {
	ttl := maxTouch
	for _, w := range g.waiters {
		ttl = min(ttl, w.req.TTL)
	}
	return ttl
}

// pause is how long to leave the server alone.
func pause(s seen, ttl time.Duration) time.Duration {
	switch o := s.outlook; {
	case o.why == whyForeign && s.position <= 1: // it publishes nothing
		return 50*time.Millisecond + retry.Jitter(100*time.Millisecond)
	case o.why == whyForeign: // whoever is next looks
		return 500*time.Millisecond + retry.Jitter(time.Second)
	case o.next < 0:
		return min(ttl, maxTouch)
	default:
		return min(o.next+lag(ttl), ttl, maxTouch)
	}
}

// lag spreads the clients that wait for the same lease to end.
func lag(ttl time.Duration) time.Duration {
	return time.Millisecond + retry.Jitter(min(ttl/20, 50*time.Millisecond))
}

// compareTickets compares numbers without leading zeros.
func compareTickets(a, b *waiter) int {
	if len(a.ticket) != len(b.ticket) {
		return len(a.ticket) - len(b.ticket)
	}
	return strings.Compare(a.ticket, b.ticket)
}
