package pglock

import (
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// turn serializes the requests of this process for one key, first come, first served. The server
// cannot do that: it grants a lock to a connection that has it already.
//
// turns.mu guards it. Turns without holders and requests are deleted.
type turn struct {
	exclusive bool     // held exclusively by this process
	shared    int      // shared holders of this process
	head      *place   // the request that talks to the server
	waiting   bool     // head waits in the server, or for the server, so non-blocking attempts are refused
	queue     []*place // behind head
}

// place is a request's place in a turn.
type place struct {
	mode    driver.Mode
	try     bool          // non-blocking
	refused bool          // valid when ready is closed
	ready   chan struct{} // closed when it is the head, or refused
}

// fits reports whether a request is compatible with this process's holders.
func (t *turn) fits(k *place) bool {
	return !t.exclusive && (k.mode == driver.Shared || t.shared == 0)
}

// join adds a request. A non-blocking attempt is refused unless it can soon be the head.
func (t *turn) join(k *place) {
	if k.try && (t.waiting || !t.fits(k) || slices.ContainsFunc(t.queue, func(o *place) bool { return !o.try })) {
		k.refuse()
		return
	}
	t.queue = append(t.queue, k)
	t.advance()
}

// refuse ends a non-blocking attempt: the lock is held.
func (k *place) refuse() {
	k.refused = true
	close(k.ready)
}

// advance makes the next compatible request the head, and refuses non-blocking attempts that would
// have to wait.
func (t *turn) advance() {
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
func (t *turn) block() {
	t.waiting = true
	t.advance()
}

// hold turns the head, which was granted, into a holder.
func (t *turn) hold(k *place) {
	if t.head != k {
		panic("pglock: a request was granted out of turn")
	}
	if k.mode == driver.Shared {
		t.shared++
	} else {
		t.exclusive = true
	}
	t.next()
}

// next removes the head.
func (t *turn) next() {
	t.head, t.waiting = nil, false
	t.advance()
}

// quit removes a request.
func (t *turn) quit(k *place) {
	if t.head == k {
		t.next()
		return
	}
	t.queue = slices.DeleteFunc(t.queue, func(o *place) bool { return o == k })
	t.advance()
}

// leave ends a hold.
func (t *turn) leave(mode driver.Mode) {
	if mode == driver.Shared {
		t.shared--
	} else {
		t.exclusive = false
	}
	t.advance()
}

// unused reports whether the turn can be deleted.
func (t *turn) unused() bool {
	return !t.exclusive && t.shared == 0 && t.head == nil && len(t.queue) == 0
}

// turns are the turns of all keys.
type turns struct {
	mu    sync.Mutex // guards byKey, and all turns
	byKey map[int64]*turn
}

// change calls do with the turn of a key, under the mutex.
func (ts *turns) change(key int64, do func(*turn)) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byKey[key]
	if t == nil {
		t = &turn{}
		ts.byKey[key] = t
	}
	do(t)
	if t.unused() {
		delete(ts.byKey, key)
	}
}
