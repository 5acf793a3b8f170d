package quorum_test

import (
	"encoding/binary"
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
	most  = 3 // clients
)

// bounds say what may happen, and how often, for all clients together.
type bounds struct {
	clients, acquires int // attempts of each client
	renews            int // of each acquisition
	units             int // of time
	late              int // requests during which something else happens
	timeouts, crashes int
	delays            int           // units of time that pass while a client waits for answers
	rates             [most]float64 // of the clocks; 0 is 1
	margin            time.Duration
}

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
	b                       *bounds
	now                     time.Duration
	nodes                   [nodes]sim.Node
	net                     []parcel
	cl                      [most]client
	owners                  sim.Owner
	top                     int64 // the greatest token that a client has relied on
	topper                  sim.Owner
	late, timeouts, crashes int
	delays                  int
	broken                  string
}

func initial(b *bounds) *world {
	w := &world{b: b, late: b.late, timeouts: b.timeouts, crashes: b.crashes, delays: b.delays}
	for i := range w.nodes {
		w.nodes[i].Ahead = time.Second.Microseconds()
	}
	for i := range b.clients {
		w.cl[i].left = b.acquires
	}
	return w
}

func (w *world) copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i, o := range w.nodes {
		n.nodes[i] = sim.Node{Ahead: o.Ahead, Fence: o.Fence, Seats: slices.Clone(o.Seats), Bars: slices.Clone(o.Bars)}
	}
	for i := range n.cl {
		n.cl[i].answers, n.cl[i].standings = slices.Clip(n.cl[i].answers), slices.Clip(n.cl[i].standings)
	}
	return &n
}

func (w *world) instant(c int) hold.Instant {
	rate := w.b.rates[c]
	if rate == 0 {
		rate = 1
	}
	return at(time.Duration(float64(w.now) * rate))
}

// micros is what the clock of every node shows.
func (w *world) micros() int64 { return w.now.Microseconds() }

func (w *world) terms() quorum.Terms {
	return quorum.Terms{Nodes: nodes, Need: nodes/2 + 1, TTL: lasts, Drift: w.b.margin}
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

const (
	kAcquire = iota
	kServe   // what was sent is executed and answered at once
	kLate    // or one of it is not
	kExec
	kAnswer
	kSilent
	kExpire
	kRenew
	kRelease
	kCrash
	kTick
)

var what = [...]string{"acquires", "is answered", "late:", "executed:", "answered:", "no answer in time:", "gives up", "renews", "releases", "crashes", "time passes"}

func (w *world) next(emit func(explore.Action, func(*world))) {
	act := func(k, c, arg int, f func(n *world)) {
		emit(explore.Action{Kind: uint8(k), Who: uint8(c), Arg: uint8(arg)}, func(n *world) {
			f(n)
			n.look()
		})
	}
	if first := slices.IndexFunc(w.net, isFresh); first >= 0 {
		who := int(w.net[first].who)
		act(kServe, who, 0, (*world).serve)
		for i, p := range w.net {
			if p.fresh && w.late > 0 {
				act(kLate, who, i, func(n *world) { n.late--; n.net[i].fresh = false })
			}
		}
		return
	}
	for i, p := range w.net {
		if p.done {
			act(kAnswer, int(p.who), i, func(n *world) { n.answer(i) })
		} else {
			act(kExec, int(p.who), i, func(n *world) { n.exec(i) })
		}
		if w.timeouts > 0 && !p.silent {
			act(kSilent, int(p.who), i, func(n *world) {
				n.timeouts--
				n.net[i].silent = true
				p.vote, p.standing = quorum.Vote{}, quorum.Silent
				n.pass(p)
			})
		}
	}
	waits := 0
	for i := range w.b.clients {
		c := &w.cl[i]
		if c.taking || c.renewing {
			waits = 1
		}
		switch {
		case c.taking:
			act(kExpire, i, 0, func(n *world) { n.cl[i].expired = true; n.decide(i) })
		case c.holds:
			h := c.h
			if !c.renewing && c.renewed < w.b.renews && h.Step(hold.Event{Kind: hold.Tick}, w.instant(i)).Renew {
				act(kRenew, i, 0, func(n *world) { n.renew(i) })
			}
			act(kRelease, i, 0, func(n *world) { n.release(i) })
		case c.left > 0:
			act(kAcquire, i, 0, func(n *world) { n.acquire(i) })
		}
		if w.crashes > 0 && (c.taking || c.holds) {
			act(kCrash, i, 0, func(n *world) { n.crashes--; n.cl[i] = client{left: c.left} })
		}
	}
	if w.delays >= waits && w.now < time.Duration(w.b.units)*unit {
		act(kTick, 0, 0, func(n *world) { n.delays -= waits; n.now += unit })
	}
}

func isFresh(p parcel) bool { return p.fresh }

// serve executes and answers what was just sent. What follows from the answers is then fresh.
func (w *world) serve() {
	fresh := 0
	for _, p := range w.net {
		if p.fresh {
			fresh++
		}
	}
	for ; fresh > 0; fresh-- {
		i := slices.IndexFunc(w.net, isFresh)
		w.exec(i)
		w.answer(i)
	}
}

func (w *world) send(i int, kind byte, to []int, p parcel) {
	for _, node := range to {
		p.kind, p.who, p.node, p.fresh, p.sent = kind, byte(i), byte(node), true, w.instant(i)
		w.net = append(w.net, p)
	}
}

var everyNode = []int{0, 1, 2}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	w.owners++
	now := w.instant(i)
	*c = client{owner: w.owners, proposed: max(w.micros()+5000, c.proposed+1), sent: now, taking: true, left: c.left - 1}
	w.send(i, asks, everyNode, parcel{owner: c.owner, token: c.proposed, by: w.micros() + unit.Microseconds() - 1})
}

func (w *world) renew(i int) {
	c := &w.cl[i]
	c.h.Step(hold.Event{Kind: hold.Tick}, w.instant(i))
	c.renewing, c.renewed, c.resent, c.standings = true, c.renewed+1, w.instant(i), nil
	w.send(i, renews, everyNode, parcel{owner: c.owner, token: c.token})
}

func (w *world) release(i int) {
	w.cl[i].h.Step(hold.Event{Kind: hold.Released}, w.instant(i))
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
		c.answers = append(c.answers, answer{p, w.instant(i)})
		w.decide(i)
	case p.kind == asks && p.vote.Granted: // of an attempt that is over
		w.send(i, frees, []int{int(p.node)}, parcel{owner: p.owner})
	case p.kind == renews && mine && p.sent == c.resent && c.holds:
		c.standings = append(c.standings, answer{p, w.instant(i)})
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
		c.h = hold.New(hold.Terms{TTL: lasts, Margin: w.b.margin, Leased: true}, c.lease, lasts)
	case t.State() == quorum.Lost:
		w.leave(i)
	}
}

// renewed does what the renewal decides after its last answer.
func (w *world) renewed(i int) {
	c := &w.cl[i]
	now := w.instant(i)
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

func (w *world) relies(i int) bool {
	return w.cl[i].holds && explore.Relies(w.cl[i].h, w.instant(i))
}

// look judges what depends on the past, and drops what has no effect any more.
func (w *world) look() {
	for i := range w.b.clients {
		c := &w.cl[i]
		switch {
		case !w.relies(i):
		case c.token > w.top:
			w.top, w.topper = c.token, c.owner
		case c.owner != w.topper:
			w.broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
	w.net = slices.DeleteFunc(w.net, func(p parcel) bool { return p.done && p.kind >= repairs })
}

func (w *world) check() string {
	for i := range w.b.clients {
		for k := range i {
			if w.relies(i) && w.relies(k) {
				return "1: two clients rely on the lock"
			}
		}
	}
	return w.broken
}

func (w *world) key(b []byte) []byte {
	num := func(vs ...int64) {
		for _, v := range vs {
			b = binary.AppendVarint(b, v)
		}
	}
	flag := func(fs ...bool) {
		for _, f := range fs {
			num(map[bool]int64{true: 1}[f])
		}
	}
	answers := func(all []answer) {
		num(int64(len(all)))
		for _, a := range all {
			num(int64(a.p.kind), int64(a.p.node), a.p.vote.Token, int64(a.p.standing), int64(a.now.Mono))
			flag(a.p.vote.Granted)
		}
	}
	num(int64(w.now), w.top, int64(w.topper), int64(w.late), int64(w.timeouts), int64(w.crashes), int64(w.delays))
	flag(w.broken != "")
	for _, n := range w.nodes {
		num(n.Fence, int64(len(n.Seats)), int64(len(n.Bars)))
		for _, s := range n.Seats {
			num(int64(s.Owner), s.Token, s.Until)
		}
		for _, r := range n.Bars {
			num(int64(r.Owner), r.Until)
			flag(r.Freed)
		}
	}
	for _, p := range w.net {
		num(int64(p.kind), int64(p.who), int64(p.node), int64(p.owner), p.token, p.by, int64(p.sent.Mono), p.vote.Token, int64(p.standing))
		flag(p.fresh, p.silent, p.done, p.vote.Granted)
	}
	for i := range w.b.clients {
		c := &w.cl[i]
		num(int64(c.owner), c.proposed, int64(c.left), int64(c.renewed), int64(c.sent.Mono), int64(c.lease.Mono), int64(c.resent.Mono), c.token)
		flag(c.taking, c.holds, c.expired, c.renewing)
		answers(c.answers)
		answers(c.standings)
		if c.holds {
			b = explore.HoldKey(b, c.h, w.instant(i))
		}
	}
	return b
}

func (w *world) show(a explore.Action) string {
	line := fmt.Sprintf("%-4s ", w.now)
	switch a.Kind {
	case kTick:
		line += what[a.Kind]
	case kLate, kExec, kAnswer, kSilent:
		line += fmt.Sprintf("%c %s request %d", 'A'+a.Who, what[a.Kind], a.Arg+1)
	default:
		line += fmt.Sprintf("%c %s", 'A'+a.Who, what[a.Kind])
	}
	line = fmt.Sprintf("%-34s", line)
	for _, n := range w.nodes {
		holder := "-"
		for _, s := range n.Seats {
			holder = fmt.Sprintf("%d/%d", s.Owner, s.Token)
		}
		line += fmt.Sprintf(" [%s]", holder)
	}
	for i := range w.b.clients {
		if w.relies(i) {
			line += fmt.Sprintf("  %c RELIES on %d", 'A'+i, w.cl[i].token)
		}
	}
	return line
}

func modelOf(b bounds) explore.Model[*world] {
	if b.margin == 0 {
		b.margin = lasts/50 + 10*time.Millisecond
	}
	return explore.Model[*world]{
		Init: initial(&b), Copy: (*world).copy, Next: (*world).next, Key: (*world).key, Check: (*world).check, Show: (*world).show,
		Limit: 8_000_000,
	}
}

var drift = [most]float64{0.99, 1.01, 1}

// The bounds that are exhausted: the small ones by each run, the others with FENCELOCK_SLOW.
var explored = []explore.Bounds[bounds]{
	explore.Always("2 clients, 1 late request", bounds{clients: 2, acquires: 1, renews: 1, units: 4, late: 1}),
	explore.Slowly("2 clients, 1 late request, 1 crash", bounds{clients: 2, acquires: 1, renews: 1, units: 4, late: 1, crashes: 1}),
	explore.Slowly("2 clients, 1 late request, 1 delay, 1 time-out", bounds{clients: 2, acquires: 1, renews: 1, units: 4, late: 1, delays: 1, timeouts: 1}),
	explore.Slowly("2 clients, 2 late requests", bounds{clients: 2, acquires: 1, renews: 1, units: 3, late: 2}),
	explore.Slowly("2 clients, 1 late request, clocks 2 % apart", bounds{clients: 2, acquires: 1, renews: 1, units: 5, late: 1, rates: drift}),
	explore.Slowly("2 clients with 2 attempts, 1 late request, 1 crash", bounds{clients: 2, acquires: 2, units: 4, late: 1, crashes: 1}),
	explore.Slowly("2 clients with 2 attempts, 1 late request, 2 time-outs, 1 crash", bounds{clients: 2, acquires: 2, units: 3, late: 1, timeouts: 2, crashes: 1}),
	explore.Slowly("3 clients, 1 late request, 1 crash", bounds{clients: 3, acquires: 1, units: 3, late: 1, crashes: 1}),
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey compares the key with whole states.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds[bounds]{
	explore.Always("3 clients, time-outs, crashes", bounds{clients: 3, acquires: 8, renews: 3, units: 100, late: 20, delays: 20, timeouts: 8, crashes: 3}),
	explore.Always("the same, clocks 2 % apart", bounds{clients: 3, acquires: 8, renews: 3, units: 100, late: 20, delays: 20, timeouts: 8, crashes: 3, rates: drift}),
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustMeet(t, modelOf(bounds{clients: 2, acquires: 5, renews: 3, units: 100, late: 10, delays: 10, margin: 1, rates: drift}))
}
