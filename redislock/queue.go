package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/nameindex"
)

// waitQueue is the requests of this client that take messages, and the locks that it
// holds: a message that comes late finds one of the two.
type waitQueue struct {
	*client
	index *nameIndex

	mu      sync.Mutex         // guards all below, and what waiter and group say
	waiters map[string]*waiter // by owner
	groups  map[string]*group  // waiters by name
	holds   map[string]hold    // by owner
	late    map[string]int64   // by owner of a hold: until when a try of its request may still be served, if one may be
	freeing map[string]bool    // owners whose release goes on in the background

	subscribed  time.Time // when the subscription began to stand
	resubscribe context.CancelCauseFunc
}

// matters reports whether a name is still held, or waited for.
func (q *waitQueue) matters(n nameindex.Noted) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, held := q.holds[n.Owner]
	return held || q.groups[n.Name] != nil
}

// register makes the queue take messages for a request.
func (q *waitQueue) register(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[w.owner] = w
}

// unregister forgets a request.
func (q *waitQueue) unregister(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(w)
}

// drop is unregister for a caller that holds mu.
func (q *waitQueue) drop(w *waiter) {
	delete(q.waiters, w.owner)
	if g := q.groups[w.req.Name]; g != nil {
		g.remove(w)
	}
}

// deliver passes a grant, or a refusal, on to the request it is for. It returns false for a
// grant that nobody waits for and nobody has.
func (q *waitQueue) deliver(owner string, n grantMsg) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiters[owner]
	if w == nil {
		h, ok := q.holds[owner]
		return ok && h.token == n.token
	}
	w.tell(n)
	if g := q.groups[w.req.Name]; g != nil && n.at > 0 {
		g.speak(n.life * 3 / 4) // the server takes us for dead when the grant is over, unless we do
	}
	return true
}

// read returns what has come for a request since it was last asked.
func (q *waitQueue) read(w *waiter) (*grantMsg, *queueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, s := w.msg, w.state
	w.msg, w.state = nil, nil
	return n, s
}

// hold is a granted acquisition.
type hold struct {
	token int64
	name  string
	lost  func(cause error)
}

// keep remembers a granted acquisition until it is released or known to be gone,
// and forgets the request in the same step: a message that comes late finds one
// of the two.
func (q *waitQueue) keep(w *waiter, token int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(w)
	q.holds[w.owner] = hold{token: token, name: w.req.Name, lost: w.req.OnLost}
	if w.late > 0 {
		q.late[w.owner] = w.late
	}
}

// lateOf returns until when a try for a lock that is held may still be served.
func (q *waitQueue) lateOf(owner string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late[owner]
}

// beginFreeing reports whether nobody releases for this owner in the background yet. The
// caller does then, and calls endFreeing.
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

func (q *waitQueue) forget(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.holds, owner)
	delete(q.late, owner)
}
