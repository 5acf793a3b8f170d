package redislock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
)

// waiter is a request under way.
type waiter struct {
	req   driver.Request
	keys  keys
	owner string
	desc  string
	asked time.Time // before it was first sent; zero if it was not
	late  int64     // until when a try that has no answer may still be served, by the server's clock
	heard driver.Waited

	ticket string        // its place, once it has joined the queue
	wake   chan struct{} // news or seen changed; nil until it has joined

	// Guarded by Engine.mu.
	queued  bool      // it is in the queue, as far as we know
	news    *news     // its grant, or why there will be none; the newest counts
	seen    *seen     // what was last seen of the queue
	trouble bool      // it was told that the server cannot be asked
	look    time.Time // when it was asked to look before it had joined; zero if it was not
	sample  sample    // of the answer by which it joined
}

func (w *waiter) entry() string { return w.owner + " " + w.desc }

// notify wakes the request. The caller holds Engine.mu.
func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not joined, or is awake
	}
}

// unanswered notes that a try has failed that may be served until late, unless the
// server has refused it.
func (w *waiter) unanswered(err error, late int64) {
	if _, refused := serverError(err); err != nil && !refused {
		w.late = max(w.late, late)
	}
}

// news ends a wait.
type news struct {
	token, floor int64
	at           int64         // server time of the grant, in microseconds; 0 means unknown
	life         time.Duration // how long the grant lasts unless it is renewed
	err          error
}

// seen is what a waiting request may tell its caller.
type seen struct {
	position int
	outlook  outlook
	err      error // why the server could not be asked
}

// sample ties the server's clock to ours: what happened at or after server
// happened after sent.
type sample struct {
	sent   time.Time
	server int64 // microseconds
}

// begin returns a local time before a grant was made on the server to a request that
// was sent after asked, or the zero time if there is no telling. It counts a clock
// that runs up to 1 % fast.
func (s sample) begin(at int64, asked time.Time) time.Time {
	passed := time.Duration(at-s.server) * time.Microsecond
	if at == 0 || s.sent.IsZero() || passed < 0 {
		return time.Time{}
	}
	begin := s.sent.Add(passed / 100 * 99)
	if begin.After(time.Now()) { // the server's clock was stepped
		return time.Time{}
	}
	if begin.Before(asked) { // the sample's answer was long on its way
		return asked
	}
	return begin
}

// register makes the engine take messages for a request.
func (e *Engine) register(w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiters[w.owner] = w
}

// unregister forgets a request. If it was the last of its name it returns the
// server's time when we last had an answer, else 0.
func (e *Engine) unregister(w *waiter) (heard int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drop(w)
}

// drop is unregister for a caller that holds mu.
func (e *Engine) drop(w *waiter) (heard int64) {
	delete(e.waiters, w.owner)
	g := e.groups[w.req.Name]
	if g == nil {
		return 0
	}
	g.remove(w)
	if len(g.waiters) > 0 {
		return 0
	}
	return g.sample.server
}

// deliver passes news on to the request they are for. It returns false for a
// grant that nobody waits for and nobody has.
func (e *Engine) deliver(owner string, n news) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waiters[owner]
	if w == nil {
		h, ok := e.holds[owner]
		return ok && h.token == n.token
	}
	w.tell(n)
	if g := e.groups[w.req.Name]; g != nil && n.at > 0 {
		g.advance(n.life + lag(g.shortest())) // nobody else tells us when it is over
	}
	return true
}

// tell ends the request's time in the queue. The caller holds Engine.mu.
func (w *waiter) tell(n news) {
	w.queued, w.news = false, &n
	w.notify()
}

// read returns what has come for a request since it was last asked.
func (e *Engine) read(w *waiter) (*news, *seen) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, s := w.news, w.seen
	w.news, w.seen = nil, nil
	return n, s
}

// hold is a granted acquisition.
type hold struct {
	token int64
	late  int64 // until when a try of its request may still be served
	name  string
	lost  func(cause error)
}

// keep remembers a granted acquisition until it is released or known to be gone,
// and forgets the request in the same step: a message that comes late finds one
// of the two. Another grant that came for the request is returned.
func (e *Engine) keep(w *waiter, token int64) (other int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(w)
	e.warm(w)
	e.holds[w.owner] = hold{token: token, late: w.late, name: w.req.Name, lost: w.req.OnLost}
	e.note(nameindex.Noted{Owner: w.owner, Name: w.req.Name, Life: max(w.req.TTL, w.req.MinHold) + nameindex.Lag, Closes: w.req.MinHold > 0})
	if n := w.news; n != nil && n.token != 0 && n.token != token {
		return n.token
	}
	return 0
}

// maxHot is how many names are remembered for having been waited for.
const maxHot = 256

// warm notes whether a request had to wait. The next one for the name then does
// not try the way for free locks first. The caller holds mu.
func (e *Engine) warm(w *waiter) {
	switch {
	case w.wake == nil:
		if len(e.hot) > 0 {
			delete(e.hot, w.req.Name)
		}
	case len(e.hot) < maxHot:
		e.hot[w.req.Name] = true
	default:
		clear(e.hot)
	}
}

// isHot reports whether a name was waited for when we got it last.
func (e *Engine) isHot(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hot[name]
}

func (e *Engine) forget(owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.holds, owner)
}
