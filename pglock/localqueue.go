package pglock

import (
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// localQueue serializes the requests of this process for one key, first come, first served. The server
// cannot do that: it grants a lock to a connection that has it already.
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
func (t *localQueue) fits(k *localRequest) bool {
	return !t.exclusive && (k.mode == driver.Shared || t.shared == 0)
}

// join adds a request. A non-blocking attempt is refused unless it can soon be the head.
func (t *localQueue) join(k *localRequest) {
	if k.try && (t.waiting || !t.fits(k) || slices.ContainsFunc(t.queue, func(o *localRequest) bool { return !o.try })) {
		k.refuse()
		return
	}
	t.queue = append(t.queue, k)
	t.advance()
}

// refuse ends a non-blocking attempt: the lock is held.
func (k *localRequest) refuse() {
	k.refused = true
	close(k.ready)
}

// advance makes the next compatible request the head, and refuses non-blocking attempts that would
// have to wait.
func (t *localQueue) advance() {
	kept := t.queue[:0]
	for _, k := range t.queue {
		switch {
		case k.try && (t.waiting || !t.fits(k)):
			k.refuse()
		case t.head == nil && len(kept) == 0 && t.fits(k):
			t.head = k
			close(k.ready)
		default:
			kept = append(kept, k)
		}
	}
	clear(t.queue[len(kept):])
	t.queue = kept
}

// block records that the head waits in the server, or for the server.
func (t *localQueue) block() {
	t.waiting = true
	t.advance()
}

// hold turns the head, which was granted, into a holder.
func (t *localQueue) hold(k *localRequest) {
	if t.head != k {
		panic("pglock: a request was granted before its turn")
	}
	if k.mode == driver.Shared {
		t.shared++
	} else {
		t.exclusive = true
	}
	t.next()
}

// next removes the head.
func (t *localQueue) next() {
	t.head, t.waiting = nil, false
	t.advance()
}

// quit removes a request.
func (t *localQueue) quit(k *localRequest) {
	if t.head == k {
		t.next()
		return
	}
	t.queue = slices.DeleteFunc(t.queue, func(o *localRequest) bool { return o == k })
	t.advance()
}

// leave ends a hold.
func (t *localQueue) leave(mode driver.Mode) {
	if mode == driver.Shared {
		t.shared--
	} else {
		t.exclusive = false
	}
	t.advance()
}

// unused reports whether the queue can be deleted.
func (t *localQueue) unused() bool {
	return !t.exclusive && t.shared == 0 && t.head == nil && len(t.queue) == 0
}

// localQueues are the queues of all keys.
type localQueues struct {
	mu    sync.Mutex // guards byKey, and all queues
	byKey map[int64]*localQueue
}

// change calls do with the queue of a key, under the mutex.
func (ts *localQueues) change(key int64, do func(*localQueue)) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byKey[key]
	if t == nil {
		t = &localQueue{}
		ts.byKey[key] = t
	}
	do(t)
	if t.unused() {
		delete(ts.byKey, key)
	}
}
