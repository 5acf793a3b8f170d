package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/retry"
)

// waitQueue holds the requests of this client that accept messages, and its granted locks. A
// message that arrives late finds its owner in one of the two.
type waitQueue struct {
	client  *client
	index   *nameIndex
	toucher *toucher

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

// waiter is a request in progress.
type waiter struct {
	req    driver.Request
	from   *driver.Lease // the acquisition to adopt; nil for an ordinary request
	lock   string        // its key
	owner  string
	desc   string
	asked  time.Time // before it was first sent; zero if it was not sent
	late   int64     // server time until which an unanswered attempt may still be served
	waited driver.Waited

	ticket string        // its place in the queue; empty until it has joined
	wake   chan struct{} // signals a change of msg or state; nil until it has joined

	// Guarded by waitQueue.mu.
	queued  bool        // it is in the queue, as far as we know
	msg     *grantMsg   // its grant, or why there is none; the newest counts
	state   *queueState // last known state of the queue
	trouble bool        // its error says that the server cannot be polled
	touch   string      // its entry, from the first touch on
	broken  int64       // the token of a grant that was broken before it was taken
	reason  string      // why it was broken
}

// entry is the request's member in the queue's sorted set.
func (w *waiter) entry() string { return w.owner + " " + w.desc }

// notify wakes the request. The caller holds waitQueue.mu.
func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not joined, or a signal is pending
	}
}

// unanswered records that a failed attempt may be served until late, unless the server refused it.
func (w *waiter) unanswered(err error, late int64) {
	if _, refused := redisconn.Refused(err); err != nil && !refused {
		w.late = max(w.late, late)
	}
}

// grantMsg ends a wait.
type grantMsg struct {
	token, floor int64
	sent         time.Time // when this client sent the last request that the server executed before the grant; zero if unknown
	err          error
}

// queueState is what a poll reports to a waiting request.
type queueState struct {
	blocked blockedInfo
	err     error // why the server could not be polled
}

// tell ends the request's time in the queue. The caller holds waitQueue.mu.
func (w *waiter) tell(n grantMsg) {
	w.queued, w.msg = false, &n
	w.notify()
}

// pollEvery is the longest time between two touches of a waiting client: half of grantLife.
const pollEvery = grantLife / 2

// grantLife is GRANT in lua/head.lua: how long a client counts as alive after a touch, and how long a
// hand-over lasts that is not confirmed.
const grantLife = 2 * time.Second

// group is the waiters of one name in this process. One goroutine polls the server for all of them.
type group struct {
	name string
	lock string        // its key
	poke chan struct{} // due or lost changed

	// Guarded by waitQueue.mu.
	waiters []*waiter
	due     time.Time // when to poll next
	lost    bool      // the server may have lost our requests
	missing time.Time // when the server last did not know the oldest request
}

// remove takes a request out. If it was the last one, the group's goroutine is woken so that it
// ends. The caller holds waitQueue.mu.
func (g *group) remove(w *waiter) {
	g.waiters = slices.DeleteFunc(g.waiters, func(o *waiter) bool { return o == w })
	if len(g.waiters) == 0 {
		g.nudge()
	}
}

// nudge wakes the group's goroutine. Several nudges may cause one wake-up, in which the goroutine
// sees all changes.
func (g *group) nudge() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// advance makes the next poll happen no later than after.
func (g *group) advance(after time.Duration) {
	if at := time.Now().Add(after); g.due.IsZero() || at.Before(g.due) {
		g.due = at
		g.nudge()
	}
}

// unpolled is the pause of a group that nothing asks to poll; the toucher reports that it waits.
const unpolled = waitLife / 3

// pause returns how long to wait before the next poll.
func pause(position int, o blockedInfo) time.Duration {
	switch {
	case o.why == whyForeign && position <= 1: // the other program publishes nothing
		return 50*time.Millisecond + retry.Jitter(100*time.Millisecond)
	case o.next < 0 || o.next > pollEvery:
		return unpolled
	}
	return afterLease(o.next)
}

// afterLease returns when to poll for a lease that ends after left. The jitter spreads the polls of
// clients that wait for the same lease.
func afterLease(left time.Duration) time.Duration {
	return left + time.Millisecond + retry.Jitter(50*time.Millisecond)
}

// oldest returns the oldest queued request, or nil. The caller holds waitQueue.mu.
func (g *group) oldest() (first *waiter) {
	for _, w := range g.waiters {
		if w.queued && (first == nil || compareTickets(w, first) < 0) {
			first = w
		}
	}
	return first
}
