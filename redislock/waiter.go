package redislock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

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
	trouble bool        // it has an error that says that the server cannot be polled
	pulse   string      // its entry, from the first beat on
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
