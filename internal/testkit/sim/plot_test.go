package sim_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/testkit/sim"
)

// Some violations need so many coincidences that no random schedule meets them.
// They are written down here: three nodes, a holder A that stands still past its
// deadline with requests on their way, and B, who comes and goes meanwhile.

const (
	lease = int64(time.Second / time.Microsecond)
	ownA  = sim.Owner(1)
	ownB  = sim.Owner(2)
)

var terms = quorum.Terms{Nodes: 3, Need: 2, TTL: time.Second, Drift: 30 * time.Millisecond}

// plot is a schedule of single steps. Times are in microseconds, and all clocks
// agree.
type plot struct {
	*testing.T
	nodes  [3]sim.Node
	tokens map[sim.Owner]int64
}

func newPlot(t *testing.T, without sim.Line) *plot {
	p := &plot{T: t, tokens: map[sim.Owner]int64{}}
	for i := range p.nodes {
		p.nodes[i] = sim.Node{Without: without}
	}
	return p
}

func at(now int64) hold.Instant {
	d := time.Duration(now) * time.Microsecond
	return hold.Instant{Mono: d, Boot: d, Wall: d}
}

// take acquires the lock on some nodes.
func (p *plot) take(owner sim.Owner, now int64, nodes ...int) {
	p.Helper()
	take := quorum.NewTake(terms, now, at(now))
	for _, i := range nodes {
		a := p.nodes[i].Ask(sim.Request{Owner: owner, Proposed: now, TTL: lease, By: now}, now)
		take.Asked(i, quorum.Vote{Granted: a.Status == sim.Granted, Token: a.Token, Floor: a.Floor}, at(now))
	}
	if take.State() != quorum.Won {
		p.Fatalf("owner %d did not get the lock of nodes %v at %d", owner, nodes, now)
	}
	p.tokens[owner] = take.Token()
}

// renew asks a node and hands the answer over, later.
func (p *plot) renew(r *quorum.Renewal, i int, now, heard int64) []int {
	return r.Heard(i, p.nodes[i].Renew(ownA, p.tokens[ownA], lease, now), 0, at(heard))
}

// comeAndGo lets B have the lock of nodes 1 and 2 for a moment.
func (p *plot) comeAndGo(now int64) {
	p.Helper()
	p.take(ownB, now, 1, 2)
	p.nodes[1].Release(sim.Ending{Owner: ownB}, now+1000)
	p.nodes[2].Release(sim.Ending{Owner: ownB}, now+1000)
	if p.tokens[ownB] <= p.tokens[ownA] {
		p.Fatalf("tokens %v do not grow", p.tokens)
	}
}

// TestLateRepair: a repair for node 2 is on its way while A's lease ends and B
// comes and goes; then it arrives, and a renewal after it.
func TestLateRepair(t *testing.T) {
	for name, c := range map[string]struct {
		lacks  sim.Line
		blind  bool // the renewal does not know which lease it extends
		broken bool
	}{
		"all lines":                         {},
		"without the stored token":          {lacks: sim.FenceLine},
		"late renewals count":               {blind: true},
		"late renewals and no stored token": {lacks: sim.FenceLine, blind: true, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlot(t, c.lacks)
			p.take(ownA, 1, 0, 1)
			first := quorum.NewRenewal(terms, at(300_000))
			p.renew(first, 2, 300_000, 300_000)
			p.renew(first, 0, 300_000, 300_000)
			if repair := p.renew(first, 1, 300_000, 300_000); len(repair) != 1 || repair[0] != 2 {
				t.Fatalf("repair of %v, want node 2", repair)
			}
			second := quorum.NewRenewal(terms, at(1_260_000))
			if !c.blind {
				second.Extends(first.Sent())
			}
			p.renew(second, 0, 1_261_000, 1_400_000)
			p.comeAndGo(1_310_000)
			p.nodes[2].Repair(ownA, p.tokens[ownA], false, lease, 1_320_000, 1_320_000)
			p.renew(second, 2, 1_330_000, 1_400_000)
			p.renew(second, 1, 1_330_000, 1_400_000)
			if broken := second.Result() == quorum.Kept; broken != c.broken {
				t.Errorf("A goes on although B had the lock: %v, want %v", broken, c.broken)
			}
		})
	}
}

// TestLateAsk: A's very first request to node 2 arrives after B has been there,
// and a renewal after it. The token that the node stored is of no help: the
// request gets a new one.
func TestLateAsk(t *testing.T) {
	for _, blind := range []bool{false, true} {
		p := newPlot(t, 0)
		p.take(ownA, 1, 0, 1)
		r := quorum.NewRenewal(terms, at(960_000))
		if !blind {
			r.Extends(at(1))
		}
		p.renew(r, 0, 961_000, 1_100_000)
		p.comeAndGo(1_010_000)
		p.nodes[2].Ask(sim.Request{Owner: ownA, Proposed: 0, TTL: lease, By: 1_020_000}, 1_020_000)
		p.renew(r, 2, 1_030_000, 1_100_000)
		if kept := r.Result() == quorum.Kept; kept != blind {
			t.Errorf("late renewals count: %v; A goes on although B had the lock: %v", blind, kept)
		}
	}
}

// TestSeatOfARenewalIsTheToken: where a node granted a greater token than the
// acquisition got, a later sharer must not take that for the floor.
func TestSeatOfARenewalIsTheToken(t *testing.T) {
	n := sim.Node{Fence: 500}
	n.Ask(sim.Request{Owner: ownA, Shared: true, Proposed: 400, TTL: lease}, 0)
	if n.Raise(ownA, 400, 0, 0) {
		t.Fatal("a node stored a token that it has given to others")
	}
	n.Renew(ownA, 400, lease, 0)
	if a := n.Ask(sim.Request{Owner: ownB, Shared: true, TTL: lease}, 0); a.Floor != 400 || a.Token != 502 {
		t.Errorf("%+v, want token 502 with floor 400", a)
	}
}
