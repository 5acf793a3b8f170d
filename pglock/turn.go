package pglock

import "github.com/fencelock/fencelock/driver"

// turn lets the requests of this process for one key go to the server one after
// the other, first come first served. The server cannot tell them apart: a lock
// that a connection has already is granted to it again.
//
// Engine.mu guards it. The turn of a key that nobody uses is forgotten.
type turn struct {
	exclusive bool      // held exclusively by this process
	shared    int       // shared holders of this process
	head      *ticket   // the one who talks to the server
	waiting   bool      // head waits in the server, so tries are refused
	queue     []*ticket // behind head
	broken    int64     // the token of the last break that was heard of
}

// ticket is a request's place in a turn.
type ticket struct {
	mode    driver.Mode
	try     bool
	refused bool          // valid when ready is closed
	ready   chan struct{} // closed when it is the head, or refused
}

// fits reports whether the process's own holders would let a request in.
func (t *turn) fits(k *ticket) bool {
	return !t.exclusive && (k.mode == driver.Shared || t.shared == 0)
}

// join puts a request in line. A try that cannot come next soon is refused.
func (t *turn) join(k *ticket) {
	if k.try && (t.waiting || !t.fits(k) || t.hasWaiter()) {
		k.refuse()
		return
	}
	t.queue = append(t.queue, k)
	t.advance()
}

func (t *turn) hasWaiter() bool {
	for _, k := range t.queue {
		if !k.try {
			return true
		}
	}
	return false
}

func (k *ticket) refuse() {
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

// block says that the head waits in the server.
func (t *turn) block() {
	t.waiting = true
	t.advance()
}

// done takes the head away, as a holder if it was granted.
func (t *turn) done(granted bool) {
	if granted && t.head.mode == driver.Shared {
		t.shared++
	} else if granted {
		t.exclusive = true
	}
	t.head, t.waiting = nil, false
	t.advance()
}

// quit takes a request out of the line, wherever it is.
func (t *turn) quit(k *ticket) {
	if t.head == k {
		t.done(false)
		return
	}
	for i, o := range t.queue {
		if o == k {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			break
		}
	}
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

func (t *turn) unused() bool {
	return !t.exclusive && t.shared == 0 && t.head == nil && len(t.queue) == 0
}

// turn changes the turn of a key by do.
func (e *Engine) turn(key int64, do func(*turn)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turnLocked(key, do)
}

// turnLocked is turn for callers who have e.mu.
func (e *Engine) turnLocked(key int64, do func(*turn)) {
	t := e.turns[key]
	if t == nil {
		t = &turn{}
		e.turns[key] = t
	}
	do(t)
	if t.unused() {
		delete(e.turns, key)
	}
}
