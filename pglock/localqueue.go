package pglock

import (
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// localQueue serializes the requests of this process for one key, first come, first served. The
// server cannot do that: it grants a lock to a connection that has it already.
//
// localQueues.mu guards it. Queues without holders and requests are deleted.
type localQueue struct {
	exclusive bool            // held exclusively by this process
	shared    int             // shared holders of this process
	head      *localRequest   // the request that talks to the server
	waiting   bool            // head waits in the server, or for the server, so non-blocking attempts are refused
	queue     []*localRequest // behind head
}

// localRequest is a request in a localQueue.
type localRequest struct {
	mode    driver.Mode
	try     bool          // non-blocking
	refused bool          // valid when ready is closed
	ready   chan struct{} // closed when it is the head, or refused
}

// fits reports whether a request is compatible with this process's holders.
func (q *localQueue) fits(k *localRequest) bool {
	return !q.exclusive && (k.mode == driver.Shared || q.shared == 0)
}

// join adds a request. A non-blocking attempt is refused unless it can soon be the head.
func (q *localQueue) join(k *localRequest) {
	if k.try && (q.waiting || !q.fits(k) || slices.ContainsFunc(q.queue, func(o *localRequest) bool { return !o.try })) {
		k.refuse()
		return
	}
	q.queue = append(q.queue, k)
	q.advance()
}

// refuse ends a non-blocking attempt: the lock is held.
func (r *localRequest) refuse() {
	r.refused = true
	close(r.ready)
}

// advance makes the next compatible request the head, and refuses non-blocking attempts that would
// have to wait.
func (q *localQueue) advance() {
	kept := q.queue[:0]
	for _, k := range q.queue {
		switch {
		case k.try && (q.waiting || !q.fits(k)):
			k.refuse()
		case q.head == nil && len(kept) == 0 && q.fits(k):
			q.head = k
			close(k.ready)
		default:
			kept = append(kept, k)
		}
	}
	clear(q.queue[len(kept):])
	q.queue = kept
}

// block records that the head waits in the server, or for the server.
func (q *localQueue) block() {
	q.waiting = true
	q.advance()
}

// hold turns the head, which was granted, into a holder.
func (q *localQueue) hold(k *localRequest) {
	if q.head != k {
		panic("pglock: a request was granted before its turn")
	}
	if k.mode == driver.Shared {
		q.shared++
	} else {
		q.exclusive = true
	}
	q.next()
}

// next removes the head.
func (q *localQueue) next() {
	q.head, q.waiting = nil, false
	q.advance()
}

// quit removes a request.
func (q *localQueue) quit(k *localRequest) {
	if q.head == k {
		q.next()
		return
	}
	q.queue = slices.DeleteFunc(q.queue, func(o *localRequest) bool { return o == k })
	q.advance()
}

// leave ends a hold.
func (q *localQueue) leave(mode driver.Mode) {
	if mode == driver.Shared {
		q.shared--
	} else {
		q.exclusive = false
	}
	q.advance()
}

// unused reports whether the queue can be deleted.
func (q *localQueue) unused() bool {
	return !q.exclusive && q.shared == 0 && q.head == nil && len(q.queue) == 0
}

// localQueues are the queues of all keys.
type localQueues struct {
	mu    sync.Mutex // guards byKey, and all queues
	byKey map[int64]*localQueue
}

// change calls do with the queue of a key, under the mutex.
func (qs *localQueues) change(key int64, do func(*localQueue)) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t := qs.byKey[key]
	if t == nil {
		t = &localQueue{}
		qs.byKey[key] = t
	}
	do(t)
	if t.unused() {
		delete(qs.byKey, key)
	}
}
