package memlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// grantTTL bounds what a waiter that was granted and does not wake up costs.
const grantTTL = 2 * time.Second

// store is what a server would be. Nothing runs in it but its clients' calls and
// one timer per name.
type store struct {
	cfg Config

	mu       sync.Mutex // guards all below, everything reached from it, and every client
	locks    map[string]*lock
	tokens   map[string]int64 // the last token of each name, for ever
	limits   map[string]int   // what Resize set, for ever
	records  map[string]record
	swaps    uint64 // how many records were ever written
	rates    gcra.Table
	watchers map[*watcher]bool
	tickets  uint64        // how many claims ever joined a queue
	after    []func()      // callbacks to run once mu is open again
	hung     chan struct{} // not nil while nothing is answered; closed to go on
}

// do runs f with the mutex held.
func (s *store) do(f func(now time.Time)) {
	s.mu.Lock()
	f(time.Now())
	s.unlock()
}

// unlock opens the mutex and runs the callbacks that fell due under it.
func (s *store) unlock() {
	after := s.after
	s.after = nil
	s.mu.Unlock()
	run(after)
}

// run calls all of fns, even if some panic.
func run(fns []func()) {
	if len(fns) > 0 {
		defer run(fns[1:])
		fns[0]()
	}
}

// lock returns what is known of a name, brought up to now. Whoever calls it
// calls settle when done.
func (s *store) lock(name string, now time.Time) *lock {
	l := s.locks[name]
	if l == nil {
		l = &lock{name: name, limit: s.limits[name]}
		s.locks[name] = l
	}
	s.handOver(l, now)
	return l
}

// settle hands the lock over, and arms its timer for the next instant at which
// time alone changes it. A lock about which nothing is left to know is forgotten.
func (s *store) settle(l *lock, now time.Time) {
	s.handOver(l, now)
	next := l.next(now)
	switch {
	case next.IsZero():
		if l.stop(); len(l.queue) == 0 && s.locks[l.name] == l {
			delete(s.locks, l.name)
		}
	case l.timer == nil:
		l.armed, l.timer = next, time.AfterFunc(next.Sub(now), func() { s.tick(l) })
	case l.armed.IsZero() || next.Before(l.armed): // a timer that fires early is harmless
		l.armed = next
		l.timer.Reset(next.Sub(now))
	}
}

// tick is what the timer of a lock calls.
func (s *store) tick(l *lock) {
	s.do(func(now time.Time) {
		if s.locks[l.name] == l {
			l.armed = time.Time{}
			s.settle(l, now)
		}
	})
}

// handOver ends what expired and grants to the next waiters as long as they fit.
func (s *store) handOver(l *lock, now time.Time) {
	for i := len(l.holders) - 1; i >= 0; i-- {
		if c := l.holders[i]; !now.Before(c.until) {
			c.client.silent = c.client.silent || c.pending
			s.end(l, c, driver.EventLost, now)
		}
	}
	for {
		c := l.head()
		if c == nil || !l.fits(c.req, now) {
			return
		}
		l.leave(c)
		s.seat(l, c, now, min(c.req.TTL, grantTTL))
		c.pending = true
		c.wake.ring()
	}
}

// mint returns the next token of a name.
func (s *store) mint(name string, now time.Time) int64 {
	s.tokens[name] = max(s.tokens[name]+1, now.UnixMicro())
	return s.tokens[name]
}

// admit grants a new claim at once or, if it is to wait, lets it join the queue.
func (s *store) admit(l *lock, c *claim, now time.Time) error {
	if err := l.checkLimit(c.req); err != nil {
		return err
	}
	if l.head() == nil && l.fits(c.req, now) {
		s.seat(l, c, now, c.req.TTL)
		s.confirm(l, c, now)
		return nil
	}
	if !c.req.Wait {
		return l.inWay(c, now)
	}
	if c.ticket == 0 {
		s.tickets++
		c.ticket, c.joined = s.tickets, now
	}
	s.join(l, c, now)
	return nil
}

// proceed lets a waiting claim that woke up take its grant, give up, or learn
// who is in its way. It joins again if the store lost its queue.
func (s *store) proceed(ctx context.Context, l *lock, c *claim, now time.Time) error {
	if s.hung != nil {
		c.heard.Unavailable(context.Background(), errHung)
	} else {
		c.heard.Held(l.inWay(c, now))
	}
	switch {
	case c.client.refusal != nil:
		s.withdraw(l, c, now)
		return c.heard.Ended(ctx, c.client.refusal)
	case ctx.Err() != nil:
		s.withdraw(l, c, now)
		return c.heard.Ended(ctx, nil)
	case s.hung != nil:
	case c.pending:
		s.confirm(l, c, now)
	case !slices.Contains(l.queue, c):
		return s.admit(l, c, now)
	}
	return nil
}

// seat makes the claim a holder for ttl.
func (s *store) seat(l *lock, c *claim, now time.Time, ttl time.Duration) {
	c.token, c.since, c.until = s.mint(l.name, now), now, now.Add(ttl)
	l.holders = append(l.holders, c)
	s.emit(driver.EventAcquired, c, now)
}

// confirm gives a seated claim its full lease, now that its client knows. Its
// minimum hold outlasts every earlier one: nothing is seated while one runs.
func (s *store) confirm(l *lock, c *claim, now time.Time) {
	c.pending = false
	c.until = now.Add(c.req.TTL)
	if c.req.MinHold > 0 {
		l.notBefore = now.Add(c.req.MinHold)
	}
	c.grant = driver.Grant{Owner: c.owner, Token: c.token, Floor: l.floor(), Sent: now, TTL: c.req.TTL}
}

// renew extends a standing acquisition to its full TTL from now. The timer stays
// as it is: it fires early and is armed again.
func (s *store) renew(lease driver.Lease, now time.Time) error {
	l := s.lock(lease.Name, now)
	defer s.settle(l, now)
	c, err := l.holder(lease)
	if err == nil {
		c.until = now.Add(c.req.TTL)
	}
	return err
}

// end takes the name from a holder. One that never learnt of its grant waits on.
func (s *store) end(l *lock, c *claim, kind driver.EventKind, now time.Time) {
	l.holders = remove(l.holders, c)
	s.emit(kind, c, now)
	if c.pending {
		c.pending, c.token = false, 0
		s.join(l, c, now)
	}
}

// join puts a claim into the queue at the place its ticket gives it.
func (s *store) join(l *lock, c *claim, now time.Time) {
	i, _ := slices.BinarySearchFunc(l.queue, c, func(a, b *claim) int { return cmp.Compare(a.ticket, b.ticket) })
	l.queue = slices.Insert(l.queue, i, c)
	l.moved()
	s.emit(driver.EventWaiting, c, now)
}

// withdraw takes a waiting claim away without a trace; a grant it did not take
// is given back.
func (s *store) withdraw(l *lock, c *claim, now time.Time) {
	switch {
	case c.pending:
		c.pending = false
		s.end(l, c, driver.EventReleased, now)
	case l.leave(c):
		s.emit(driver.EventLeft, c, now)
	}
}

// revoke takes the name from holders and tells them the cause.
func (s *store) revoke(l *lock, holders []*claim, cause error, now time.Time) {
	for _, c := range holders {
		if !c.pending {
			s.tell(c, cause)
		}
		s.end(l, c, driver.EventLost, now)
	}
}

// tell calls the claim's Lost once the mutex is open and its client can run.
func (s *store) tell(c *claim, cause error) {
	e := c.client
	fn := func() { c.req.OnLost(cause) }
	switch {
	case c.req.OnLost == nil || e.killed:
	case e.frozen != nil:
		e.backlog = append(e.backlog, fn)
	default:
		s.after = append(s.after, fn)
	}
}

// heard ends the silence of a client: its waiters count again.
func (s *store) heard(e *Engine, now time.Time) {
	if !e.silent {
		return
	}
	e.silent = false
	for _, l := range s.locks {
		s.settle(l, now)
	}
}
