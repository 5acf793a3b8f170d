package redislock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// waiter is a request under way.
type waiter struct {
	req   driver.Request
	lock  string // its key
	owner string
	desc  string
	asked time.Time // before it was first sent; zero if it was not
	late  int64     // until when a try that has no answer may still be served, by the server's clock
	heard driver.Waited

	ticket string        // its place, once it has joined the queue
	wake   chan struct{} // msg or state changed; nil until it has joined

	// Guarded by waitQueue.mu.
	queued  bool        // it is in the queue, as far as we know
	msg     *grantMsg   // its grant, or why there will be none; the newest counts
	state   *queueState // what was last seen of the queue
	trouble bool        // it was told that the server cannot be asked
	pollAt  time.Time   // when it was asked to poll before it had joined; zero if it was not
	sample  clockSample // of the answer by which it joined
	broken  int64       // the token of a grant that was broken before it was taken
	reason  string      // why
}

// entry is how the queue names the request.
func (w *waiter) entry() string { return w.owner + " " + w.desc }

// notify wakes the request. The caller holds waitQueue.mu.
func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not joined, or is awake
	}
}

// unanswered notes that a try has failed that may be served until late, unless the
// server has refused it.
func (w *waiter) unanswered(err error, late int64) {
	if _, refused := redisconn.Refused(err); err != nil && !refused {
		w.late = max(w.late, late)
	}
}

// grantMsg ends a wait.
type grantMsg struct {
	token, floor int64
	at           int64         // server time of the grant, in microseconds; 0 means unknown
	life         time.Duration // how long the grant lasts unless it is renewed
	err          error
}

// queueState is what a waiting request hears.
type queueState struct {
	blocked blockedInfo
	err     error // why the server could not be asked
}

// tell ends the request's time in the queue. The caller holds waitQueue.mu.
func (w *waiter) tell(n grantMsg) {
	w.queued, w.msg = false, &n
	w.notify()
}
