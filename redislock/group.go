package redislock

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// maxSilence is how long a waiting client may stay silent.
const maxSilence = 20 * time.Second

// group is the waiters of one name in this process. One goroutine speaks to the
// server for all of them.
type group struct {
	name string
	lock string        // its key
	poke chan struct{} // due or lost changed

	// Guarded by waitQueue.mu.
	waiters []*waiter
	due     time.Time   // when the server is to be asked next
	by      time.Time   // when it has to hear of us at the latest
	lost    bool        // the server may have forgotten our requests
	sample  clockSample // of the last answer
}

// remove takes a request out. Without any left the group's goroutine ends, which has to
// hear of it. The caller holds waitQueue.mu.
func (g *group) remove(w *waiter) {
	g.waiters = slices.DeleteFunc(g.waiters, func(o *waiter) bool { return o == w })
	if len(g.waiters) == 0 {
		g.nudge()
	}
}

// nudge wakes the group's goroutine, which looks at all that has changed: one waking
// stands for several.
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

// speak makes the next poll happen no later than after, whatever we are asked meanwhile.
func (g *group) speak(after time.Duration) {
	if at := time.Now().Add(after); at.Before(g.by) {
		g.by = at
	}
	g.advance(after)
}

// heard notes that the server has heard of us.
func (g *group) heard() { g.by = time.Now().Add(maxSilence) }

// shortest is the shortest TTL among the requests.
func (g *group) shortest() time.Duration {
	ttl := maxSilence
	for _, w := range g.waiters {
		ttl = min(ttl, w.req.TTL)
	}
	return ttl
}

// pause is how long to leave the server alone.
func pause(position int, o blockedInfo, ttl time.Duration) time.Duration {
	switch {
	case o.why == whyForeign && position <= 1: // it publishes nothing
		return 50*time.Millisecond + retry.Jitter(100*time.Millisecond)
	case o.why == whyForeign: // whoever is next looks
		return 500*time.Millisecond + retry.Jitter(time.Second)
	case o.next < 0:
		return min(ttl, maxSilence)
	default:
		return min(o.next+pollJitter(ttl), ttl, maxSilence)
	}
}

// pollJitter spreads the clients that wait for the same lease to end.
func pollJitter(ttl time.Duration) time.Duration {
	return time.Millisecond + retry.Jitter(min(ttl/20, 50*time.Millisecond))
}
