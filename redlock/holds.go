package redlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
)

// held is a granted acquisition of this process.
type held struct {
	lease driver.Lease
	desc  string
	sent  time.Time // from when the lease counts; guarded by Engine.mu
	lost  func(cause error)
	asks  asks // of the request
}

// keep remembers a grant until it is released or known to be gone.
func (e *Engine) keep(req driver.Request, g driver.Grant, under asks) {
	h := &held{
		lease: driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL},
		desc:  describe(req),
		sent:  g.Sent,
		asks:  under,
		lost:  func(error) {},
	}
	if req.OnLost != nil {
		var once sync.Once
		h.lost = func(cause error) { once.Do(func() { req.OnLost(cause) }) }
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holds[g.Owner] = h
	e.note(nameindex.Noted{Owner: g.Owner, Name: req.Name, Life: max(req.TTL, req.MinHold) + nameindex.Lag, Closes: req.MinHold > 0})
	if len(e.holds) > e.sweepAt {
		e.sweep(time.Now())
		e.sweepAt = max(1000, 2*len(e.holds))
	}
}

// sweep forgets the acquisitions that were given up without a word, long after
// their leases. The caller holds mu.
func (e *Engine) sweep(now time.Time) {
	for owner, h := range e.holds {
		if now.Sub(h.sent) > 2*h.lease.TTL {
			delete(e.holds, owner)
		}
	}
}

// held returns what is known of an acquisition, nil if it is none of ours.
func (e *Engine) held(owner string) *held {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holds[owner]
}

func (e *Engine) keeps(owner string) bool { return e.held(owner) != nil }

// forget forgets an acquisition, and returns what was known of it, nil if nothing.
func (e *Engine) forget(owner string) *held {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.holds[owner]
	delete(e.holds, owner)
	return h
}

// foreign reports whether a lease names an acquisition with another's token.
// Nodes go by the owner alone: some store a token a little off.
func (e *Engine) foreign(l driver.Lease) bool {
	h := e.held(l.Owner)
	return h != nil && (h.lease.Token != l.Token || h.lease.Name != l.Name)
}

// counts returns from when a lease counts, and whether that is known.
func (e *Engine) counts(owner string) (sent time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.holds[owner]; h != nil {
		return h.sent, true
	}
	return sent, false
}

// extended notes from when a renewed lease counts.
func (e *Engine) extended(owner string, sent time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.holds[owner]; h != nil && h.sent.Before(sent) {
		h.sent = sent
		e.note(nameindex.Noted{Owner: owner, Name: h.lease.Name, Life: h.lease.TTL + nameindex.Lag})
	}
}
