package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
)

// waitQueue holds the requests of this client that accept messages, and its granted locks. A
// message that arrives late finds its owner in one of the two.
type waitQueue struct {
	*client
	index  *nameIndex
	beater *beater

	mu      sync.Mutex         // guards all below, and the marked fields of waiter and group
	waiters map[string]*waiter // by owner
	groups  map[string]*group  // waiters by name
	holds   map[string]*hold   // by owner
	late    map[string]int64   // by owner of a hold: until when an unanswered attempt of its request may still be served
	freeing map[string]bool    // owners that are being released in the background
	short   map[string]bool    // by owner of a hold: its lease is that of a hand-over, not yet renewed to the full TTL

	subscribed  time.Time // when the current subscription began
	resubscribe context.CancelCauseFunc
}

// matters reports whether a name is still held or waited for.
func (q *waitQueue) matters(n nameindex.Noted) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, held := q.holds[n.Owner]
	return held || q.groups[n.Name] != nil
}

// register makes the queue accept messages for a request.
func (q *waitQueue) register(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[w.owner] = w
}

// unregister removes a request.
func (q *waitQueue) unregister(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(w)
}

// drop is the variant of unregister for a caller that holds mu.
func (q *waitQueue) drop(w *waiter) {
	delete(q.waiters, w.owner)
	if g := q.groups[w.req.Name]; g != nil {
		g.remove(w)
	}
}

// deliver passes a grant or a refusal to its request. It returns false if the grant belongs to no
// request and no hold.
func (q *waitQueue) deliver(owner string, n grantMsg) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiters[owner]
	if w == nil {
		h, ok := q.holds[owner]
		return ok && h.token == n.token
	}
	w.tell(n)
	return true
}

// read returns and clears the messages of a request.
func (q *waitQueue) read(w *waiter) (*grantMsg, *queueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, s := w.msg, w.state
	w.msg, w.state = nil, nil
	return n, s
}

// hold is a granted acquisition.
type hold struct {
	token  int64
	name   string
	lost   func(cause error)
	sent   time.Time     // before the last request that granted or renewed it; zero if unknown
	life   time.Duration // how long the lease lasts, counted from sent
	warned bool          // that another program has shortened the lease
}

// keep records a granted acquisition until it is released or known to be lost. It removes the
// request in the same step, so that a late message finds its owner in one of the two.
func (q *waitQueue) keep(w *waiter, g driver.Grant, short bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(w)
	q.holds[w.owner] = &hold{token: g.Token, name: w.req.Name, lost: w.req.OnLost, sent: g.Sent, life: g.TTL}
	if w.late > 0 {
		q.late[w.owner] = w.late
	}
	if short {
		q.short[w.owner] = true
	}
}

// lateOf returns until when an attempt for a granted lock may still be served, or 0.
func (q *waitQueue) lateOf(owner string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late[owner]
}

// beginFreeing reports whether no background release runs for this owner. If it returns true, the
// caller starts one and calls endFreeing at its end.
func (q *waitQueue) beginFreeing(owner string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.freeing[owner] {
		return false
	}
	q.freeing[owner] = true
	return true
}

func (q *waitQueue) endFreeing(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.freeing, owner)
}

// forgetAfter forgets a hold that lasts, when its lease has ended. Until then a grant message that
// arrives late must find its owner, or the lock would be released.
func (q *waitQueue) forgetAfter(ttl time.Duration, owner string) {
	time.AfterFunc(ttl, func() { q.forget(owner) })
}

func (q *waitQueue) forget(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.erase(owner)
}

// erase is the variant of forget for a caller that holds mu.
func (q *waitQueue) erase(owner string) {
	delete(q.holds, owner)
	delete(q.late, owner)
	delete(q.short, owner)
}

// extended records that a lease was renewed to its full TTL, by a request that was sent at this time and
// whose answer was there at now. left is how long the lease would have lasted without it, negative if for
// ever. extended returns, once per hold, by how much that was clearly less than the request before had
// asked for. Times before steady have an unknown distance from now.
func (q *waitQueue) extended(l driver.Lease, sent, now, steady time.Time, left time.Duration) (early time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.short, l.Owner)
	h := q.holds[l.Owner]
	if h == nil {
		return 0
	}
	if !h.warned && left >= 0 && !h.sent.Before(steady) {
		if early = h.life - now.Sub(h.sent) - left; early < min(time.Second, h.life/10) {
			early = 0
		}
		h.warned = early > 0
	}
	h.sent, h.life = sent, l.TTL
	return early
}

// isShort reports whether a lease is still that of a hand-over.
func (q *waitQueue) isShort(owner string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.short[owner]
}
