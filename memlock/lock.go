package memlock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limits"
)

// grantTTL bounds the delay caused by a waiter that was granted but does not wake up.
const grantTTL = 2 * time.Second

// lock is the state of one name. Its methods are called with the store's mutex held, through
// store.with, which hands the lock over before and after.
type lock struct {
	store     *store
	name      string
	limit     int       // set by Resize; 0 means the limit of the requests
	holders   []*claim  // oldest first
	queue     queue     // next first
	notBefore time.Time // end of a minimum hold
	timer     *time.Timer
	armed     time.Time // when timer fires; zero while it does not run
}

// admit grants a new claim, or lets it join the queue if it waits.
func (l *lock) admit(c *claim, now time.Time) error {
	err := l.refuse(c, now)
	switch {
	case err == nil:
		l.addHolder(c, now, c.req.TTL)
		l.confirm(c, now)
	case c.req.Wait && errors.Is(err, driver.ErrHeld):
		if c.ticket == 0 {
			c.ticket, c.joined = l.store.issue(now), now
		}
		l.join(c, now)
		return nil
	}
	return err
}

// refuse returns what keeps a claim from being granted immediately, nil if nothing does. A claim
// never overtakes a waiter, even if it fits and the waiter does not.
func (l *lock) refuse(c *claim, now time.Time) error {
	if err := l.checkLimit(c.req); err != nil {
		return err
	}
	if l.queue.head() != nil || !l.fits(c.req, now) {
		return l.inWay(c, now)
	}
	return nil
}

// checkLimit rejects a limit that differs from that of the other requests.
func (l *lock) checkLimit(req driver.Request) error {
	if req.Mode != driver.Shared {
		return nil
	}
	for _, c := range slices.Concat(l.holders, l.queue) {
		agreed := c.req.Limit == req.Limit || l.limit > 0 && c.req.Limit > 0 && req.Limit > 0
		if c.req.Mode == driver.Shared && !agreed {
			return limits.Differ(l.name, c.req.Limit, req.Limit)
		}
	}
	return nil
}

// fits reports whether a request may hold the name beside the holders.
func (l *lock) fits(req driver.Request, now time.Time) bool {
	if now.Before(l.notBefore) {
		return false
	}
	taken := 0
	for _, h := range l.holders {
		if h.req.Mode != driver.Shared || req.Mode != driver.Shared {
			return false
		}
		taken += h.req.Units()
	}
	return req.Limit == 0 || taken == 0 || taken+req.Units() <= cmp.Or(l.limit, req.Limit)
}

// pass ends an acquisition and grants its name to a new claim.
func (l *lock) pass(lease driver.Lease, c *claim, now time.Time) error {
	old, err := l.holder(lease)
	if err != nil {
		return err
	}
	if old.req.Limit != c.req.Limit || old.req.Units() != c.req.Units() {
		return limits.Unlike(l.name, old.req.Limit, old.req.Units())
	}
	l.end(old, driver.EventReleased, now)
	l.addHolder(c, now, c.req.TTL)
	l.confirm(c, now)
	return nil
}

// inWay returns who is in the claim's way.
func (l *lock) inWay(c *claim, now time.Time) *driver.HeldError {
	held := &driver.HeldError{Name: l.name}
	if len(l.holders) > 0 && l.holders[0] != c {
		h := l.holders[0]
		held.Owner, held.Identity, held.Since, held.Until = h.owner, h.req.Identity, h.since, h.until
	} else if w := l.queue.head(); w != nil && w != c {
		held.Owner, held.Identity = w.owner, w.req.Identity
	}
	if now.Before(l.notBefore) && l.notBefore.After(held.Until) {
		held.Until = l.notBefore
	}
	return held
}

// handOver removes expired holders, and grants to the next waiters as long as they fit.
func (l *lock) handOver(now time.Time) {
	for i := len(l.holders) - 1; i >= 0; i-- { // backwards, since end removes
		if c := l.holders[i]; !now.Before(c.until) {
			c.client.silent = c.client.silent || c.pending
			l.end(c, driver.EventLost, now)
		}
	}
	for {
		c := l.queue.head()
		if c == nil || !l.fits(c.req, now) {
			return
		}
		l.queue.leave(c)
		l.addHolder(c, now, min(c.req.TTL, grantTTL))
		c.pending = true
		c.wake.send()
	}
}

// addHolder makes the claim a holder for ttl. It issues the token now, so that tokens have the
// order in which the name was held.
func (l *lock) addHolder(c *claim, now time.Time, ttl time.Duration) {
	c.token, c.since, c.until = l.store.issue(now), now, now.Add(ttl)
	l.holders = append(l.holders, c)
	l.store.emit(driver.EventAcquired, c, now)
}

// confirm gives a pending claim its full lease. Its minimum hold ends after every earlier one,
// because nothing is granted while one runs.
func (l *lock) confirm(c *claim, now time.Time) {
	c.pending = false
	c.until = now.Add(c.req.TTL)
	if c.req.MinHold > 0 {
		l.notBefore = now.Add(c.req.MinHold)
	}
	floor := c.token
	for _, h := range l.holders {
		floor = min(floor, h.token)
	}
	c.grant = driver.Grant{Owner: c.owner, Token: c.token, Floor: floor, Sent: now, TTL: c.req.TTL}
}

// holder returns a confirmed acquisition.
func (l *lock) holder(lease driver.Lease) (*claim, error) {
	for _, c := range l.holders {
		if c.owner == lease.Owner && c.token == lease.Token && !c.pending {
			return c, nil
		}
	}
	return nil, notHeld(lease.Name)
}

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }

// end takes the name from a holder. A pending claim waits again, at its old place.
func (l *lock) end(c *claim, kind driver.EventKind, now time.Time) {
	l.holders = remove(l.holders, c)
	l.store.emit(kind, c, now)
	if c.pending {
		c.pending, c.token = false, 0
		l.join(c, now)
	}
}

// join puts a claim with a ticket into the queue.
func (l *lock) join(c *claim, now time.Time) {
	l.queue.join(c)
	l.store.emit(driver.EventWaiting, c, now)
}

// withdraw removes a waiting claim. A pending grant is released.
func (l *lock) withdraw(c *claim, now time.Time) {
	switch {
	case c.pending:
		c.pending = false
		l.end(c, driver.EventReleased, now)
	case l.queue.leave(c):
		l.store.emit(driver.EventLeft, c, now)
	}
}

// revoke takes the name from holders and notifies them. A pending claim's client does not know of
// its grant, so it is not notified.
func (l *lock) revoke(holders []*claim, cause error, now time.Time) {
	for _, c := range slices.Clone(holders) {
		if !c.pending {
			l.tell(c, cause)
		}
		l.end(c, driver.EventLost, now)
	}
}

// tell calls the claim's OnLost after the mutex is released: never for a killed client, and after
// Thaw for a frozen one.
func (l *lock) tell(c *claim, cause error) {
	fn := func() { c.req.OnLost(cause) }
	switch {
	case c.req.OnLost == nil || c.client.killed:
	case c.client.frozen != nil:
		c.client.backlog = append(c.client.backlog, fn)
	default:
		l.store.after = append(l.store.after, fn)
	}
}

// arm sets the timer for the next time at which the lock changes by itself, and reports whether
// there is one.
func (l *lock) arm(now time.Time) bool {
	next := l.next(now)
	switch {
	case next.IsZero():
		if l.timer != nil {
			l.timer.Stop()
			l.armed = next
		}
	case l.timer == nil:
		l.armed, l.timer = next, time.AfterFunc(next.Sub(now), l.tick)
	case l.armed.IsZero() || next.Before(l.armed): // firing too early, after a renewal, is harmless
		l.armed = next
		l.timer.Reset(next.Sub(now))
	}
	return !next.IsZero()
}

// next returns when the first lease or the minimum hold ends; the zero time if there is none.
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

// tick is called by the timer. The store may have deleted the lock meanwhile and created another
// one for the name. That one is then handed over, which is harmless.
func (l *lock) tick() {
	l.store.do(func(now time.Time) {
		l.armed = time.Time{}
		_ = l.store.with(l.name, now, func(*lock) error { return nil })
	})
}
