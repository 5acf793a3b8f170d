package redislock

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

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

// unpolled is the pause of a group that nothing asks to poll; the beater reports that it waits.
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
