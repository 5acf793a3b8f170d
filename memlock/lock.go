package memlock

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// claim is one request on its way from waiting to holding.
type claim struct {
	client *Engine
	req    driver.Request
	owner  string
	wake   bell // rings when there is news for its goroutine

	ticket  uint64    // its place among waiters; 0 if it never waited
	joined  time.Time // when it began to wait
	token   int64     // not 0 while it holds
	since   time.Time // when it began to hold
	until   time.Time // when its lease ends
	pending bool      // granted, and its client has not confirmed that it knows
	grant   driver.Grant
	heard   driver.Waited // what its client knows of its wait
}

// granted reports whether the client has its grant.
func (c *claim) granted() bool { return c.grant.Token != 0 }

// bell wakes one goroutine; ringing it again before it wakes changes nothing.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// lock is what the store knows of one name besides its last token.
type lock struct {
	name      string
	limit     int       // in force since a Resize; 0 means that of the requests
	holders   []*claim  // oldest first
	queue     []*claim  // next first
	notBefore time.Time // end of a minimum hold
	timer     *time.Timer
	armed     time.Time // when timer fires; zero while it does not run
}

// fits reports whether a request could hold the name beside those who do.
func (l *lock) fits(req driver.Request, now time.Time) bool {
	if now.Before(l.notBefore) {
		return false
	}
	for _, h := range l.holders {
		if h.req.Mode != driver.Shared || req.Mode != driver.Shared {
			return false
		}
		if h.pending && h.req.MinHold > 0 { // its minimum hold begins when it confirms
			return false
		}
	}
	taken := l.taken()
	return req.Limit == 0 || taken == 0 || taken+req.Units() <= cmp.Or(l.limit, req.Limit)
}

// taken is how much of the limit the holders have.
func (l *lock) taken() (units int) {
	for _, h := range l.holders {
		units += h.req.Units()
	}
	return units
}

// checkLimit refuses a limit that differs from the one the others agreed on.
func (l *lock) checkLimit(req driver.Request) error {
	if req.Mode != driver.Shared {
		return nil
	}
	for _, c := range slices.Concat(l.holders, l.queue) {
		agreed := c.req.Limit == req.Limit || l.limit > 0 && c.req.Limit > 0 && req.Limit > 0
		if c.req.Mode == driver.Shared && !agreed {
			return driver.LimitError(l.name, c.req.Limit, req.Limit)
		}
	}
	return nil
}

// head is the next live waiter, nil if there is none. Those of silent clients
// keep their places but are passed over.
func (l *lock) head() *claim {
	for _, w := range l.queue {
		if !w.client.silent {
			return w
		}
	}
	return nil
}

// inWay says who keeps the claim waiting.
func (l *lock) inWay(c *claim, now time.Time) *driver.HeldError {
	held := &driver.HeldError{Name: l.name}
	if len(l.holders) > 0 && l.holders[0] != c {
		h := l.holders[0]
		held.Owner, held.Identity, held.Since, held.Until = h.owner, h.req.Identity, h.since, h.until
	} else if w := l.head(); w != nil && w != c {
		held.Owner, held.Identity = w.owner, w.req.Identity
	}
	if now.Before(l.notBefore) && l.notBefore.After(held.Until) {
		held.Until = l.notBefore
	}
	return held
}

// position is the place of a waiter, 1 for the next one; 0 for one of a silent
// client, whose place is unknown.
func (l *lock) position(c *claim) int {
	place := 0
	for _, w := range l.queue {
		if !w.client.silent {
			place++
			if w == c {
				return place
			}
		}
	}
	return 0
}

// stop stops the timer.
func (l *lock) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.armed = time.Time{}
	}
}

// next is the next instant at which time alone changes the lock; zero for never.
func (l *lock) next(now time.Time) time.Time {
	var next time.Time
	if now.Before(l.notBefore) {
		next = l.notBefore
	}
	for _, h := range l.holders {
		if next.IsZero() || h.until.Before(next) {
			next = h.until
		}
	}
	return next
}

// holder finds a standing acquisition whose client knows of it.
func (l *lock) holder(lease driver.Lease) (*claim, error) {
	for _, c := range l.holders {
		if c.owner == lease.Owner && c.token == lease.Token && !c.pending {
			return c, nil
		}
	}
	return nil, notHeld(lease.Name)
}

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }

// floor is the smallest token among the holders.
func (l *lock) floor() int64 {
	least := l.holders[0].token
	for _, h := range l.holders {
		least = min(least, h.token)
	}
	return least
}

// leave takes a claim out of the queue and reports whether it was there.
func (l *lock) leave(c *claim) bool {
	before := len(l.queue)
	l.queue = remove(l.queue, c)
	l.moved()
	return len(l.queue) < before
}

// moved wakes the waiters who want to know their place, and nobody else.
func (l *lock) moved() {
	for _, w := range l.queue {
		if w.req.Follow {
			w.wake.ring()
		}
	}
}

func remove(claims []*claim, c *claim) []*claim {
	return slices.DeleteFunc(claims, func(o *claim) bool { return o == c })
}
