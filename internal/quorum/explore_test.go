package quorum_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/testkit/explore"
	"github.com/fencelock/fencelock/internal/testkit/sim"
)

// The explorer drives Take, Renewal and the hold on three of the simulator's nodes, which a test
// compares with the scripts. A request to a node is executed and answered before anything else happens,
// unless it is one of a few late ones.

const (
	unit  = 2 * time.Second // of the explored time, as long as a request may be served
	lasts = 3 * unit        // the TTL
	nodes = 3
)

const ( // kinds of parcels
	asks = iota
	raises
	renews
	repairs
	frees
)

// A parcel is a request to a node or, once it is executed, its answer.
type parcel struct {
	kind, who, node byte
	owner           sim.Owner
	token, by       int64 // by is until when it is served, in microseconds
	sent            hold.Instant
	fresh           bool // nothing has happened since it was sent
	silent          bool // its client does not wait for the answer any more
	done            bool
	vote            quorum.Vote // the answer; Granted also of a raise
	standing        quorum.Standing
}

// An answer is what a client has passed to a take or a renewal, which are made again from their
// answers, as they cannot be copied.
type answer struct {
	p   parcel
	now hold.Instant
}

type client struct {
	owner         sim.Owner
	proposed      int64
	sent          hold.Instant // of the attempt
	answers       []answer     // to the attempt
	expired       bool         // the attempt was given up
	taking, holds bool
	token         int64
	h             hold.Hold
	lease         hold.Instant
	renewing      bool
	resent        hold.Instant // of the renewal
	standings     []answer     // to the renewal
	left, renewed int
}

type world struct {
	explore.World[sim.Owner]
	nodes  [nodes]sim.Node
	net    []parcel
	cl     [explore.MostClients]client
	owners sim.Owner
}

func (w *world) Copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i, o := range w.nodes {
		n.nodes[i] = sim.Node{Ahead: o.Ahead, Fence: o.Fence, Seats: slices.Clone(o.Seats), Bars: slices.Clone(o.Bars)}
	}
	return &n
}

// micros is what the clock of every node shows.
func (w *world) micros() int64 { return w.Now.Microseconds() }

func (w *world) terms() quorum.Terms {
	return quorum.Terms{Nodes: nodes, Need: nodes/2 + 1, TTL: lasts, Drift: w.Terms(lasts).Margin}
}

// take makes the attempt of a client again.
func (w *world) take(c *client) (t *quorum.Take, last quorum.Orders) {
	t = quorum.NewTake(w.terms(), c.proposed, c.sent)
	for _, a := range c.answers {
		if a.p.kind == asks {
			last = t.Asked(int(a.p.node), a.p.vote, a.now)
		} else {
			last = t.Raised(int(a.p.node), a.p.vote.Granted, 0, a.now)
		}
	}
	if c.expired {
		last = t.Expire()
	}
	return t, last
}

// renewal makes the renewal of a client again.
func (w *world) renewal(c *client) (r *quorum.Renewal, repair []int) {
	r = quorum.NewRenewal(w.terms(), c.resent)
	r.Extends(c.lease)
	for _, a := range c.standings {
		repair = r.Heard(int(a.p.node), a.p.standing, 0, a.now)
	}
	return r, repair
}

func clients(w *world) int { return w.Clients }
func parcels(w *world) int { return len(w.net) }

// steps: what was just sent is answered, or late, before anything else happens.
var steps = []explore.Step[*world]{
	{Name: "what was just sent is executed and answered", First: true,
		If:   func(w *world, _ int) bool { return slices.ContainsFunc(w.net, isFresh) },
		Then: func(w *world, _ int) { w.serve() }},
	{Name: "request # is late", Of: parcels, Fault: explore.Late, First: true,
		If:   func(w *world, i int) bool { return w.net[i].fresh },
		Then: func(w *world, i int) { w.net[i].fresh = false }},
	{Name: "request # is executed", Of: parcels,
		If:   func(w *world, i int) bool { return !w.net[i].done },
		Then: (*world).exec},
	{Name: "request # is answered", Of: parcels,
		If:   func(w *world, i int) bool { return w.net[i].done },
		Then: (*world).answer},
	{Name: "the client of request # stops waiting for the answer", Of: parcels, Fault: explore.Timeout,
		If:   func(w *world, i int) bool { return !w.net[i].silent },
		Then: (*world).silence},
	{Name: "client # acquires", Of: clients,
		If:   func(w *world, i int) bool { c := &w.cl[i]; return !c.taking && !c.holds && c.left > 0 },
		Then: (*world).acquire},
	{Name: "client # gives up", Of: clients,
		If:   func(w *world, i int) bool { return w.cl[i].taking },
		Then: func(w *world, i int) { w.cl[i].expired = true; w.decide(i) }},
	{Name: "client # renews", Of: clients,
		If: func(w *world, i int) bool {
			c := &w.cl[i]
			return c.holds && !c.renewing && w.RenewalDue(i, c.h, c.renewed)
		},
		Then: (*world).renew},
	{Name: "client # releases", Of: clients,
		If:   func(w *world, i int) bool { return w.cl[i].holds },
		Then: (*world).release},
	{Name: "client # crashes", Of: clients, Fault: explore.Crash,
		If:   func(w *world, i int) bool { return (w.cl[i].taking || w.cl[i].holds) },
		Then: func(w *world, i int) { w.cl[i] = client{left: w.cl[i].left} }},
	{Name: "time passes", Fault: explore.Delay, While: (*world).busy,
		If:   func(w *world, _ int) bool { return w.Now < time.Duration(w.Units)*unit },
		Then: func(w *world, _ int) { w.Now += unit }},
}

func isFresh(p parcel) bool { return p.fresh }

// serve executes and answers what was just sent. What follows from the answers is then fresh.
func (w *world) serve() {
	sent := slices.DeleteFunc(slices.Clone(w.net), func(p parcel) bool { return !p.fresh })
	for range sent {
		i := slices.IndexFunc(w.net, isFresh)
		w.exec(i)
		w.answer(i)
	}
}

// silence makes a client take a parcel for lost. It is still on its way.
func (w *world) silence(i int) {
	w.net[i].silent = true
	p := w.net[i]
	p.vote, p.standing = quorum.Vote{}, quorum.Silent
	w.pass(p)
}

// busy reports whether a client waits for answers: time that passes then is a delay.
func (w *world) busy() bool {
	return slices.ContainsFunc(w.cl[:], func(c client) bool { return c.taking || c.renewing })
}

func (w *world) send(i int, kind byte, to []int, p parcel) {
	for _, node := range to {
		p.kind, p.who, p.node, p.fresh, p.sent = kind, byte(i), byte(node), true, w.Instant(i)
		w.net = append(w.net, p)
	}
}

var everyNode = []int{0, 1, 2}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	w.owners++
	now := w.Instant(i)
	*c = client{owner: w.owners, proposed: max(w.micros()+5000, c.proposed+1), sent: now, taking: true, left: c.left - 1}
	w.send(i, asks, everyNode, parcel{owner: c.owner, token: c.proposed, by: w.micros() + unit.Microseconds() - 1})
}

func (w *world) renew(i int) {
	c := &w.cl[i]
	c.h.Step(hold.Event{Kind: hold.Tick}, w.Instant(i))
	c.renewing, c.renewed, c.resent, c.standings = true, c.renewed+1, w.Instant(i), nil
	w.send(i, renews, everyNode, parcel{owner: c.owner, token: c.token})
}

func (w *world) release(i int) {
	w.cl[i].h.Step(hold.Event{Kind: hold.Released}, w.Instant(i))
	w.free(i, everyNode)
	w.leave(i)
}

// free releases an acquisition on some nodes, which then refuse requests of it that are on their way.
func (w *world) free(i int, to []int) {
	c := &w.cl[i]
	for _, node := range to {
		by := int64(0)
		for _, p := range w.net {
			if p.owner == c.owner && int(p.node) == node && !p.done {
				by = max(by, p.by)
			}
		}
		w.send(i, frees, []int{node}, parcel{owner: c.owner, by: by})
	}
}

func (w *world) leave(i int) { w.cl[i] = client{left: w.cl[i].left, proposed: w.cl[i].proposed} }

// exec executes a request at its node.
func (w *world) exec(i int) {
	p, now := &w.net[i], w.micros()
	n := &w.nodes[p.node]
	switch p.fresh, p.done = false, true; p.kind {
	case asks:
		a := n.Ask(sim.Request{Owner: p.owner, Proposed: p.token, TTL: lasts.Microseconds(), By: p.by}, now)
		p.vote = quorum.Vote{Granted: a.Status == sim.Granted, Token: a.Token, Floor: a.Floor}
	case raises:
		p.vote.Granted = n.Raise(p.owner, p.token, 0, now)
	case renews:
		p.standing = n.Renew(p.owner, p.token, lasts.Microseconds(), now)
	case repairs:
		n.Repair(p.owner, p.token, false, lasts.Microseconds(), p.by, now)
	case frees:
		n.Release(sim.Ending{Owner: p.owner, By: p.by}, now)
	}
}

// answer brings an answer to its client.
func (w *world) answer(i int) {
	p := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	w.pass(p)
}

// pass passes an answer to what it belongs to.
func (w *world) pass(p parcel) {
	i := int(p.who)
	c := &w.cl[i]
	mine := p.owner == c.owner
	switch {
	case (p.kind == asks || p.kind == raises) && mine:
		c.answers = append(slices.Clip(c.answers), answer{p, w.Instant(i)})
		w.decide(i)
	case p.kind == asks && p.vote.Granted: // of an attempt that is over
		w.send(i, frees, []int{int(p.node)}, parcel{owner: p.owner})
	case p.kind == renews && mine && p.sent == c.resent && c.holds:
		c.standings = append(slices.Clip(c.standings), answer{p, w.Instant(i)})
		w.renewed(i)
	}
}

// decide does what the attempt orders after its last answer.
func (w *world) decide(i int) {
	c := &w.cl[i]
	t, orders := w.take(c)
	w.send(i, raises, orders.Raise, parcel{owner: c.owner, token: t.Token()})
	w.free(i, orders.Free)
	switch {
	case !c.taking:
	case t.State() == quorum.Won:
		c.taking, c.holds, c.token, c.lease = false, true, t.Token(), t.Sent()
		c.h = hold.New(w.Terms(lasts), c.lease, lasts)
	case t.State() == quorum.Lost:
		w.leave(i)
	}
}

// renewed does what the renewal decides after its last answer.
func (w *world) renewed(i int) {
	c := &w.cl[i]
	now := w.Instant(i)
	r, repair := w.renewal(c)
	if left := c.h.Left(now); left > 0 && c.h.Cause() == nil {
		w.send(i, repairs, repair, parcel{owner: c.owner, token: c.token, by: w.micros() + min(unit-1, left).Microseconds()})
	}
	if !c.renewing {
		return
	}
	switch c.renewing = r.Result() == quorum.Open; r.Result() {
	case quorum.Kept:
		if !c.h.Step(hold.Event{Kind: hold.Renewed, Sent: r.Sent()}, now).Lost {
			c.lease = r.Sent()
		}
	case quorum.Gone:
		c.h.Step(hold.Event{Kind: hold.Gone, Cause: hold.ErrDeadline}, now)
	case quorum.Failed:
		c.h.Step(hold.Event{Kind: hold.Failed, Cause: hold.ErrDeadline}, now)
	}
}

// claim returns what a client relies on.
func (w *world) claim(i int) (explore.Claim[sim.Owner], bool) {
	c := &w.cl[i]
	return explore.Claim[sim.Owner]{Owner: c.owner, Token: c.token}, c.holds && explore.Relies(c.h, w.Instant(i))
}

// look judges what depends on the past, and drops what has no effect any more.
func (w *world) Look() {
	w.Rely(w.claim)
	w.net = slices.DeleteFunc(w.net, func(p parcel) bool { return p.done && p.kind >= repairs })
}

func (w *world) Check() string { return w.Judge(w.claim, nil, nil) }

func (w *world) Key(k *explore.Key) {
	k.Num(int64(w.Now), w.Top.Token, int64(w.Top.Owner))
	k.Text(w.Broken)
	k.Faults(w.Left)
	for _, n := range w.nodes {
		k.Num(n.Fence, int64(len(n.Seats)), int64(len(n.Bars)))
		for _, s := range n.Seats {
			k.Num(int64(s.Owner), s.Token, s.Until)
		}
		for _, r := range n.Bars {
			k.Num(int64(r.Owner), r.Until)
			k.Flag(r.Freed)
		}
	}
	for _, p := range w.net {
		k.Num(int64(p.kind), int64(p.who), int64(p.node), int64(p.owner), p.token, p.by, int64(p.sent.Mono), p.vote.Token, int64(p.standing))
		k.Flag(p.fresh, p.silent, p.done, p.vote.Granted)
	}
	for i := range w.Clients {
		c := &w.cl[i]
		k.Num(int64(c.owner), c.proposed, int64(c.left), int64(c.renewed), int64(c.sent.Mono), int64(c.lease.Mono), int64(c.resent.Mono), c.token)
		k.Flag(c.taking, c.holds, c.expired, c.renewing)
		for _, all := range [][]answer{c.answers, c.standings} {
			k.Num(int64(len(all)))
			for _, a := range all {
				k.Num(int64(a.p.kind), int64(a.p.node), a.p.vote.Token, int64(a.p.standing), int64(a.now.Mono))
				k.Flag(a.p.vote.Granted)
			}
		}
		if c.holds {
			k.Hold(c.h, w.Instant(i))
		}
	}
}

func (w *world) Show() string {
	line := w.Line(w.claim)
	for _, n := range w.nodes {
		line += fmt.Sprint(" ", n.Seats)
	}
	return line
}

func modelOf(b explore.Bounds) explore.Model[*world] {
	w := &world{World: explore.NewWorld[sim.Owner](&b)}
	for i := range w.nodes {
		w.nodes[i].Ahead = time.Second.Microseconds()
	}
	for i := range b.Clients {
		w.cl[i].left = b.Acquires
	}
	return explore.Model[*world]{Init: w, Steps: steps, Limit: 8_000_000}
}

var explored = []explore.Bounds{
	{Name: "2 clients, 1 late request", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Late: 1},
	{Slow: true, Name: "2 clients, 1 late request, 1 crash", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Late: 1, Crashes: 1},
	{Slow: true, Name: "2 clients, 1 late request, 1 delay, 1 time-out", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Late: 1, Delays: 1, Timeouts: 1},
	{Slow: true, Name: "2 clients, 2 late requests", Clients: 2, Acquires: 1, Renews: 1, Units: 3, Late: 2},
	{Slow: true, Name: "2 clients, 1 late request, clocks 2 % apart", Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 1, Rates: explore.Drift},
	{Slow: true, Name: "2 clients with 2 attempts, 1 late request, 1 crash", Clients: 2, Acquires: 2, Units: 4, Late: 1, Crashes: 1},
	{Slow: true, Name: "2 clients with 2 attempts, 1 late request, 2 time-outs, 1 crash", Clients: 2, Acquires: 2, Units: 3, Late: 1, Timeouts: 2, Crashes: 1},
	{Slow: true, Name: "3 clients, 1 late request, 1 crash", Clients: 3, Acquires: 1, Units: 3, Late: 1, Crashes: 1},
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey: states with one key have the same future.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds{
	{Name: "3 clients, time-outs, crashes", Clients: 3, Acquires: 8, Renews: 3, Units: 100, Late: 20, Delays: 20, Timeouts: 8, Crashes: 3},
	{Name: "the same, clocks 2 % apart", Clients: 3, Acquires: 8, Renews: 3, Units: 100, Late: 20, Delays: 20, Timeouts: 8, Crashes: 3, Rates: explore.Drift},
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustBreak(t, explore.Walk(modelOf(explore.Bounds{Clients: 2, Acquires: 5, Renews: 3, Units: 100, Late: 10, Delays: 10, Margin: 1, Rates: explore.Drift}), 1, 1_000_000, 2))
}

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 1},
	"again":     {Clients: 2, Acquires: 2, Units: 3, Late: 2},
	"rates":     {Clients: 2, Acquires: 1, Units: 4, Late: 1, Rates: explore.Drift},
	"delays":    {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 2, Delays: 1},
	"time-outs": {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Late: 2, Timeouts: 2},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the decisions and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, "../..", []explore.Mutant{
		explore.Change("one node grants", "take.go", "plain", "case granted < need:\n\t\treturn Orders{}", "case granted < need-1:\n\t\treturn Orders{}", "case same >= need && ", "case same >= need-1 && ", "granted+open < need", "granted+open < need-1"),
		explore.Change("there is no second round", "take.go", "again", "\tt.state = Raising\n\treturn t.raise(t.granted())", "\tt.state = Won\n\treturn Orders{}"),
		explore.Change("the proposal is the token", "take.go", "again", "if b.Token == t.proposed {", "if true {"),
		explore.Change("one node keeps a lock", "renewal.go", "delays", "case kept >= need && r.late(now):", "case kept >= 1 && r.late(now):", "case kept >= need:", "case kept >= 1:"),
	})
}
