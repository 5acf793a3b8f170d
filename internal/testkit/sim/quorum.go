package sim

import (
	"slices"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// take is a quorum.Take without some of its safety lines. Package quorum has no switches for them.
// Instead, take changes the inputs and the orders of the quorum.Take as if the line were missing.
type take struct {
	quorum.Take
	lacks   Line
	granted [maxNodes]bool
	nodes   int
	won     hold.Instant // when the take was won
}

func (t *take) without(l Line) bool { return t.lacks&l != 0 }

// Sent returns the start of the lease.
func (t *take) Sent() hold.Instant {
	if t.without(SentLine) && t.State() == quorum.Won {
		return t.won
	}
	return t.Take.Sent()
}

// Asked handles a node's vote.
func (t *take) Asked(node int, v quorum.Vote, now hold.Instant) quorum.Orders {
	if t.without(DistinctLine) {
		v.Server = 0
	}
	t.granted[node] = t.granted[node] || v.Granted
	return t.step(now, func(now hold.Instant) quorum.Orders { return t.Take.Asked(node, v, now) })
}

// Raised handles a node's answer to the second round.
func (t *take) Raised(node int, ok bool, server uint64, now hold.Instant) quorum.Orders {
	if t.without(DistinctLine) {
		server = 0
	}
	return t.step(now, func(now hold.Instant) quorum.Orders { return t.Take.Raised(node, ok, server, now) })
}

// Expire ends an attempt that has taken too long.
func (t *take) Expire() quorum.Orders {
	return t.step(hold.Instant{}, func(hold.Instant) quorum.Orders { return t.Take.Expire() })
}

// step makes one step of the take without the missing lines.
func (t *take) step(now hold.Instant, do func(now hold.Instant) quorum.Orders) quorum.Orders {
	before, seen := t.State(), now
	if t.without(ElapsedLine) {
		seen = t.Take.Sent()
	}
	o := do(seen)
	begins := before == quorum.Asking && t.State() == quorum.Raising
	switch {
	case t.without(WriteBackLine) && begins: // as if all nodes had answered
		for _, i := range o.Raise {
			t.Take.Raised(i, true, 0, seen)
		}
		o.Raise = nil
	case t.without(GrantedLine) && begins: // as if all nodes had granted
		for i, granted := range t.granted[:t.nodes] {
			if !granted {
				o.Raise = append(o.Raise, t.Take.Asked(i, quorum.Vote{Granted: true, Token: t.Token()}, seen).Raise...)
			}
		}
	case t.without(StragglerLine) && !begins:
		o.Raise = nil
	case t.without(CleanUpLine):
		o.Free = nil
	case t.without(EveryLine):
		o.Free = slices.DeleteFunc(o.Free, func(i int) bool { return !t.granted[i] })
	}
	if before != quorum.Won && t.State() == quorum.Won {
		t.won = now
	}
	return o
}

// renewal is a quorum.Renewal without some of its safety lines.
type renewal struct {
	quorum.Renewal
	lacks Line
	kept  hold.Instant // when the renewal was kept
}

func (r *renewal) without(l Line) bool { return r.lacks&l != 0 }

// Sent returns the start of the extended lease.
func (r *renewal) Sent() hold.Instant {
	if r.without(SentLine) && r.Result() == quorum.Kept {
		return r.kept
	}
	return r.Renewal.Sent()
}

// Heard handles the answer of a node, and returns the nodes to repair.
func (r *renewal) Heard(node int, s quorum.Standing, server uint64, now hold.Instant) (repair []int) {
	seen, open := now, r.Result() == quorum.Open
	if r.without(ElapsedLine) || r.without(LeaseLine) && !open {
		seen = r.Renewal.Sent()
	}
	if r.without(DistinctLine) {
		server = 0
	}
	repair = r.Renewal.Heard(node, s, server, seen)
	if open {
		r.kept = now
	}
	return repair
}
