package pglock

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// connections is about what is left for this engine: one connection for notes, one
// for locks, and some for requests that wait.
func (in *inspection) connections() driver.Finding {
	free, want := in.facts.Int(colConnsFree), int64(in.engine.cfg.MaxWaiters)+2
	saw := fmt.Sprintf("%d of %d free", free, in.facts.Int(colConns))
	if free >= want {
		return good("connections", saw)
	}
	return bad("connections", driver.Warning, saw,
		fmt.Sprintf("one process may want %d, for locks, notes and waiters; without them locks cannot be had", want),
		"raise max_connections, or lower MaxWaiters (max-waiters)")
}

// fewLocks is how many locks a server should have room for.
const fewLocks = 1000

func (in *inspection) lockTable() driver.Finding {
	all, used := in.facts.Int(colSlots), in.facts.Int(colSlotsUsed)
	saw := fmt.Sprintf("room for %d locks of all kinds, %d taken", all, used)
	switch {
	case used*10 > all*6:
		return bad("lock table", driver.Warning, saw, "a full table fails locks, and other statements and connections with them",
			"raise max_locks_per_transaction")
	case all < fewLocks:
		return bad("lock table", driver.Warning, saw, fmt.Sprintf("one process may hold %d at once; more are refused", all*6/10),
			"raise max_locks_per_transaction")
	}
	return good("lock table", saw)
}

// clockBound is how far apart clocks may be before people are misled.
const clockBound = 500 * time.Millisecond

func (in *inspection) clock() driver.Finding {
	direction := "ahead"
	if in.ahead < 0 {
		direction = "behind"
	}
	saw := fmt.Sprintf("the server is %s by %v, give or take %v", direction, short(in.ahead.Abs()), short(in.doubt))
	if in.ahead.Abs()-in.doubt <= clockBound {
		return good("clock", saw)
	}
	return bad("clock", driver.Warning, saw, "times in lists are off here; no lock depends on both clocks",
		"keep both clocks with NTP, and let them be slewed rather than stepped")
}

// renewPart is the part of a TTL after which a lease is renewed.
const renewPart = 3

func (in *inspection) latency() driver.Finding {
	took := slices.Sorted(slices.Values(in.took))
	middle, longest := took[len(took)/2], took[len(took)-1]
	limit := in.ttl / renewPart / 2
	saw := fmt.Sprintf("p50 %v, longest %v, of %d statements", short(middle), short(longest), len(took))
	switch {
	case middle > limit:
		return bad("latency", driver.Broken, saw, fmt.Sprintf("a statement to renew a TTL of %v should take %v at most, so locks are lost", in.ttl, limit),
			"a longer TTL, or a server that is nearer")
	case longest > limit/2:
		return bad("latency", driver.Warning, saw, fmt.Sprintf("a statement to renew a TTL of %v should take %v at most", in.ttl, limit),
			"a longer TTL")
	}
	return good("latency", saw)
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
