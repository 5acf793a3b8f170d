package pglock

import (
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// turn lets the requests of this process for one key go to the server one after
// the other, first come first served. The server cannot tell them apart: a lock
// that a connection has already is granted to it again.
//
// turns.mu guards it. The turn of a key that nobody uses is forgotten.
type turn struct {
	exclusive bool     // held exclusively by this process
	shared    int      // shared holders of this process
	head      *place   // the one who talks to the server
	waiting   bool     // head waits in the server, or for the server, so tries are refused
	queue     []*place // behind head
}

// place is a request's place in a turn.
type place struct {
	mode    driver.Mode
	try     bool
	refused bool          // valid when ready is closed
	ready   chan struct{} // closed when it is the head, or refused
}

// fits reports whether the process's own holders would let a request in.
func (t *turn) fits(k *place) bool {
	return !t.exclusive && (k.mode == driver.Shared || t.shared == 0)
}

// join puts a request in line. A try that cannot come next soon is refused.
func (t *turn) join(k *place) {
	if k.try && (t.waiting || !t.fits(k) || slices.ContainsFunc(t.queue, func(o *place) bool { return !o.try })) {
		k.refuse()
		return
	}
	t.queue = append(t.queue, k)
	t.advance()
}

// refuse tells a try that the lock is held.
func (k *place) refuse() {
	k.refused = true
	close(k.ready)
}

// advance makes the next request the head, if it fits, and refuses tries that
// would have to wait.
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

// block says that the head waits in the server, or until it answers.
func (t *turn) block() {
	t.waiting = true
	t.advance()
}

// hold makes a head that was granted a holder.
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

// next takes the head away.
func (t *turn) next() {
	t.head, t.waiting = nil, false
	t.advance()
}

// quit takes a request out of the line, wherever it is.
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

// unused reports whether the turn says no more than none would.
func (t *turn) unused() bool {
	return !t.exclusive && t.shared == 0 && t.head == nil && len(t.queue) == 0
}

// turns are the turns of all keys.
type turns struct {
	mu    sync.Mutex // guards byKey, and all turns
	byKey map[int64]*turn
}

// change changes the turn of a key by do.
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
