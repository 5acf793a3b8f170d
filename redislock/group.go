package redislock

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// maxSilence is the longest time between two polls of a waiting client.
const maxSilence = 20 * time.Second

// group is the waiters of one name in this process. One goroutine polls the server for all of them.
type group struct {
	name string
	lock string        // its key
	poke chan struct{} // due or lost changed

	// Guarded by waitQueue.mu.
	waiters []*waiter
	due     time.Time   // when to poll next
	by      time.Time   // latest time of the next poll, so that the server does not drop this client
	granted time.Time   // when the last grant arrived
	lost    bool        // the server may have lost our requests
	sample  clockSample // from the last answer
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

// speak makes the next poll happen before a grant of this life expires, when the server drops this
// client unless it has polled.
func (g *group) speak(life time.Duration) {
	after := life * 3 / 4
	g.granted = time.Now()
	if at := g.granted.Add(after); at.Before(g.by) {
		g.by = at
	}
	g.advance(after)
}

// heard records that the server has answered a poll, which keeps this client alive there. If a grant
// has arrived since the poll was sent, the answer may be the older of the two and changes nothing.
func (g *group) heard(sent time.Time) {
	if g.granted.Before(sent) {
		g.by = time.Now().Add(maxSilence)
	}
}

// postpone makes the next poll happen after the given time, or earlier if the server would
// otherwise drop this client as dead.
func (g *group) postpone(after time.Duration) {
	g.due = time.Now().Add(after)
	if g.by.Before(g.due) {
		g.due = g.by
	}
	g.nudge()
}

// shortest returns the shortest TTL of the requests, at most maxSilence.
func (g *group) shortest() time.Duration {
	ttl := maxSilence
	for _, w := range g.waiters {
		ttl = min(ttl, w.req.TTL)
	}
	return ttl
}

// pause returns how long to wait before the next poll.
func pause(position int, o blockedInfo, ttl time.Duration) time.Duration {
	switch {
	case o.why == whyForeign && position <= 1: // it publishes nothing
		return 50*time.Millisecond + retry.Jitter(100*time.Millisecond)
	case o.why == whyForeign: // only the next in line polls often
		return 500*time.Millisecond + retry.Jitter(time.Second)
	case o.next < 0:
		return min(ttl, maxSilence)
	default:
		return min(o.next+pollJitter(ttl), ttl, maxSilence)
	}
}

// pollJitter spreads the polls of clients that wait for the same lease to expire.
func pollJitter(ttl time.Duration) time.Duration {
	return time.Millisecond + retry.Jitter(min(ttl/20, 50*time.Millisecond))
}
