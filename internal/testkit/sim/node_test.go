package sim_test

import (
	"testing"

	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/testkit/sim"
)

func TestNodeTokens(t *testing.T) {
	const ahead = 500
	for name, c := range map[string]struct{ fence, now, proposed, want int64 }{
		"the proposal":         {fence: 10, now: 1000, proposed: 1100, want: 1100},
		"the clock":            {fence: 10, now: 1000, proposed: 900, want: 1000},
		"the one after":        {fence: 5000, now: 1000, proposed: 1100, want: 5001},
		"a proposal, capped":   {fence: 10, now: 1000, proposed: 9999, want: 1500},
		"a clock stepped back": {fence: 5000, now: 10, proposed: 20, want: 5001},
	} {
		n := sim.Node{Fence: c.fence, Ahead: ahead}
		if a := n.Ask(sim.Request{Owner: 1, Proposed: c.proposed, TTL: 100, By: c.now}, c.now); a.Token != c.want || n.Fence != c.want {
			t.Errorf("%s: %+v, fence %d, want %d", name, a, n.Fence, c.want)
		}
	}
}

func TestNodeExcludes(t *testing.T) {
	n := sim.Node{}
	ask := func(owner sim.Owner, shared bool, now int64) sim.Status {
		return n.Ask(sim.Request{Owner: owner, Shared: shared, TTL: 100, By: now}, now).Status
	}
	if ask(1, true, 0) != sim.Granted || ask(2, true, 10) != sim.Granted || ask(3, false, 20) != sim.Held {
		t.Error("two share, and a third does not get it for itself")
	}
	if ask(3, false, 105) != sim.Held || ask(3, false, 110) != sim.Granted || ask(1, true, 111) != sim.Held {
		t.Error("it is free when the last of them has run out")
	}
	if ask(3, false, 150); n.Renew(3, n.Fence, 100, 209) != quorum.Renewed {
		t.Error("who asks twice has the lock for a TTL from then on")
	}
	release := func(owner sim.Owner) sim.End {
		end, _ := n.Release(sim.Ending{Owner: owner}, 210)
		return end
	}
	if release(1) != sim.Gone || release(3) != sim.Ended || release(3) != sim.Freed {
		t.Error("only the owner releases, and once")
	}
	if n.Renew(3, 1, 100, 211) != quorum.Free || len(n.Seats) > 0 {
		t.Error("a renewal revived a lock")
	}
}

func TestNodeQuarantine(t *testing.T) {
	n := sim.Node{}
	ask := func(nodes uint32, now int64) sim.Status {
		return n.Ask(sim.Request{Owner: sim.Owner(now + 1), Shared: true, TTL: 1, By: now, Nodes: nodes, MaxTTL: 1000}, now).Status
	}
	if ask(7, 0) != sim.Quarantined || ask(7, 999) != sim.Quarantined || ask(7, 1000) != sim.Granted {
		t.Error("an unknown node votes when MaxTTL has passed since it was first asked")
	}
	if ask(8, 1001) != sim.OtherNodes {
		t.Error("a node works with two sets of nodes")
	}
	n = sim.Node{}
	n.Declare(7, 1000)
	if ask(7, 0) != sim.Granted {
		t.Error("a node that was declared new does not vote")
	}
}

func TestNodeRaises(t *testing.T) {
	n := sim.Node{}
	a := n.Ask(sim.Request{Owner: 1, Shared: true, Proposed: 0, TTL: 100, By: 10}, 10)
	b := n.Ask(sim.Request{Owner: 2, Shared: true, Proposed: 0, TTL: 100, By: 10}, 10)
	if !n.Raise(1, a.Token, 0, 20) || !n.Raise(2, 50, 0, 20) || n.Fence != 50 {
		t.Errorf("fence %d, want 50", n.Fence)
	}
	if n.Raise(1, 50, 0, 20) || n.Raise(1, 40, 0, 20) || !n.Raise(1, 51, 0, 20) {
		t.Error("no two acquisitions have one token")
	}
	if n.Raise(3, 60, 0, 20) || n.Raise(2, 60, 0, 200) || n.Fence != 51 || b.Floor != a.Token {
		t.Error("only who has the lock raises its token")
	}
	if n.Repair(2, 50, true, 100, 201, 201) || !n.Repair(2, 51, true, 100, 201, 201) || n.Repair(3, 99, false, 100, 202, 202) {
		t.Error("a repair puts back what nobody followed")
	}
}
