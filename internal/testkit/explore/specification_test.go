package explore_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// The steps of docs/specification.md as a program: this explores what the page says, not code that
// ships. break, forget, closed and writes are left out.

const (
	specTTL   = 4 // ticks
	specEnd   = 2 // of a request, and the lease of a place
	specTicks = 7
	specNet   = 3 // messages on their way, before a client sends another one that it need not send
)

type (
	record struct{ owner, token, sent, renewed int } // owner 0 is free
	place  struct{ owner, sent, until int }
	lease  struct {
		owner, token, sent int
		sure               bool // c relies on it until its end
	}
	message struct {
		kind                    string
		owner, token, sent, end int
	}
	actor struct {
		asked  int
		stays  int
		lease  lease
		left   int // requests
		renews int
	}
)

// page is a state of the specification.
type page struct {
	margin, lag            int // lag: the second client's clock loses a tick in so many
	asks, renews, stays    int // of each client; without stays, places do not end
	now, last, owners      int
	record                 record
	queue                  []place
	net                    []message
	cl                     [2]actor
	over                   []int // owners that have left or released
	top, topper            int
	loses, copies, crashes int
	broken                 string
}

func (p *page) clock(c int) int {
	if c == 1 && p.lag > 0 {
		return p.now - p.now/p.lag
	}
	return p.now
}

func (p *page) relies(c int) bool {
	l := p.cl[c].lease
	return l.owner != 0 && l.sure && p.clock(c) < l.sent+specTTL-p.margin
}

func (p *page) copy() *page {
	n := *p
	n.queue, n.net, n.over = slices.Clone(p.queue), slices.Clone(p.net), slices.Clone(p.over)
	return &n
}

func (p *page) send(m message) { p.net = append(p.net, m) }

func of(owner int) int { return owner % 2 } // the client

// grant makes an owner the holder.
func (p *page) grant(owner, sent int) {
	if p.relies(0) || p.relies(1) {
		p.broken = "3: granted while a client relies on the lock"
	}
	if slices.Contains(p.over, owner) {
		p.broken = "4: granted after its owner has left or released"
	}
	p.last++
	p.record = record{owner, p.last, sent, p.now}
	p.queue = slices.DeleteFunc(p.queue, func(q place) bool { return q.owner == owner })
	p.send(message{kind: "granted", owner: owner, token: p.last, sent: sent})
}

// placeEnd is when the lease of a place ends that begins now.
func (p *page) placeEnd() int {
	if p.stays == 0 {
		return specTicks + 1
	}
	return p.now + specEnd
}

func (p *page) free() bool {
	return p.record.owner == 0 || p.now >= p.record.renewed+specTTL
}

// arrive executes a request at the engine, or brings an answer to its client.
func (p *page) arrive(m message) {
	c := of(m.owner)
	a := &p.cl[c]
	mine := p.record.owner == m.owner && p.record.token == m.token
	at := slices.IndexFunc(p.queue, func(q place) bool { return q.owner == m.owner })
	switch m.kind {
	case "ask", "stay":
		late := p.now > m.end || slices.Contains(p.over, m.owner)
		switch {
		case late:
		case p.record.owner == m.owner:
			p.send(message{kind: "granted", owner: m.owner, token: p.record.token, sent: p.record.sent})
		case at >= 0:
			p.queue[at].sent, p.queue[at].until = m.sent, p.placeEnd()
		case p.free() && len(p.queue) == 0:
			p.grant(m.owner, m.sent)
		default: // enqueue
			p.queue = append(p.queue, place{m.owner, m.sent, p.placeEnd()})
		}
	case "granted": // learn
		if a.asked == m.owner {
			a.asked = 0
			a.lease = lease{owner: m.owner, token: m.token, sent: m.sent, sure: p.clock(c)-m.sent <= specTTL/2}
		}
	case "renew":
		answer := message{kind: "gone", owner: m.owner, token: m.token}
		if mine && !p.free() {
			p.record.renewed, answer.kind, answer.sent = p.now, "renewed", m.sent
		}
		p.send(answer)
	case "renewed":
		if l := &a.lease; l.owner == m.owner && p.clock(c) < l.sent+specTTL-p.margin {
			l.sent, l.sure = m.sent, true
		}
	case "gone": // tell
		if a.lease.owner == m.owner {
			a.lease = lease{}
		}
	case "release", "leave":
		if mine || m.kind == "leave" && p.record.owner == m.owner {
			p.record = record{}
		}
		if at >= 0 {
			p.queue = slices.Delete(p.queue, at, at+1)
		}
		p.over = append(p.over, m.owner)
	}
}

const (
	sArrive = iota
	sCopy
	sLose
	sGrant
	sAsk
	sStay
	sLeave
	sRenew
	sRelease
	sTell
	sCrash
	sPass
)

var specSteps = [...]string{"arrives", "arrives, and stays", "is lost", "grant", "ask", "stay", "leave", "renew", "release", "tell", "crash", "pass"}

func (p *page) next(emit func(explore.Action, func(*page))) {
	step := func(kind, who, arg int, f func(n *page)) {
		emit(explore.Action{Kind: uint8(kind), Who: uint8(who), Arg: uint8(arg)}, func(n *page) {
			f(n)
			n.judge()
		})
	}
	full := len(p.net) >= specNet
	for i, m := range p.net {
		gone := func(n *page) { n.net = slices.Delete(n.net, i, i+1) }
		step(sArrive, of(m.owner), i, func(n *page) { gone(n); n.arrive(m) })
		if p.copies > 0 {
			step(sCopy, of(m.owner), i, func(n *page) { n.copies--; n.arrive(m) })
		}
		if p.loses > 0 {
			step(sLose, of(m.owner), i, func(n *page) { n.loses--; gone(n) })
		}
	}
	if p.free() && len(p.queue) > 0 {
		step(sGrant, of(p.queue[0].owner), 0, func(n *page) { n.grant(n.queue[0].owner, n.queue[0].sent) })
	}
	for c := range p.cl {
		a := p.cl[c]
		now := p.clock(c)
		if a.asked == 0 && a.lease.owner == 0 && a.left > 0 && !full {
			step(sAsk, c, 0, func(n *page) {
				n.owners++
				o := 2*n.owners + c
				n.cl[c].asked, n.cl[c].left, n.cl[c].renews, n.cl[c].stays = o, a.left-1, n.renews, n.stays
				n.send(message{kind: "ask", owner: o, sent: now, end: n.now + specEnd})
			})
		}
		if a.asked != 0 {
			if a.stays > 0 && !full {
				step(sStay, c, 0, func(n *page) {
					n.cl[c].stays--
					n.send(message{kind: "stay", owner: a.asked, sent: now, end: n.now + specEnd})
				})
			}
			step(sLeave, c, 0, func(n *page) { n.cl[c].asked = 0; n.send(message{kind: "leave", owner: a.asked}) })
		}
		if l := a.lease; l.owner != 0 {
			if a.renews > 0 && !full {
				step(sRenew, c, 0, func(n *page) {
					n.cl[c].renews--
					n.send(message{kind: "renew", owner: l.owner, token: l.token, sent: now})
				})
			}
			step(sRelease, c, 0, func(n *page) {
				n.cl[c].lease = lease{}
				n.send(message{kind: "release", owner: l.owner, token: l.token})
			})
			if !p.relies(c) {
				step(sTell, c, 0, func(n *page) { n.cl[c].lease = lease{} })
			}
		}
		if p.crashes > 0 && (a.asked != 0 || a.lease.owner != 0) {
			step(sCrash, c, 0, func(n *page) { n.crashes--; n.cl[c] = actor{left: a.left} })
		}
	}
	if p.now < specTicks {
		step(sPass, 0, 0, func(n *page) {
			n.now++
			n.queue = slices.DeleteFunc(n.queue, func(q place) bool { return q.until <= n.now })
		})
	}
}

func (p *page) judge() {
	slices.SortFunc(p.net, func(a, b message) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), a.owner-b.owner, a.token-b.token, a.sent-b.sent, a.end-b.end)
	})
	for c := range p.cl {
		switch l := p.cl[c].lease; {
		case !p.relies(c):
		case l.token > p.top:
			p.top, p.topper = l.token, l.owner
		case l.owner != p.topper:
			p.broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
	if p.relies(0) && p.relies(1) {
		p.broken = "1: two clients rely on the lock"
	}
}

func (p *page) show(a explore.Action) string { return specSteps[a.Kind] + " " + "AB"[a.Who:a.Who+1] }

func specification(p page) explore.Model[*page] {
	for c := range p.cl {
		p.cl[c].left = p.asks
	}
	return explore.Model[*page]{
		Init: &p, Copy: (*page).copy, Next: (*page).next, Key: func(p *page, b []byte) []byte { return explore.Whole(p, b) },
		Check: func(p *page) string { return p.broken }, Show: (*page).show, Limit: 3_000_000,
	}
}

func TestSpecification(t *testing.T) {
	explore.Exhaust(t, []explore.Bounds[page]{
		explore.Always("2 clients", page{margin: 1, asks: 1}),
		explore.Slowly("2 clients, 1 renewal", page{margin: 1, asks: 1, renews: 1}),
		explore.Always("2 clients, 1 doubled message", page{margin: 1, asks: 1, copies: 1}),
		explore.Always("2 clients, 1 crash", page{margin: 1, asks: 1, crashes: 1}),
	}, specification)
}

func TestWalkSpecification(t *testing.T) {
	explore.Roam(t, []explore.Bounds[page]{
		explore.Always("the specification", page{margin: 1, asks: 3, renews: 2, stays: 3, copies: 3, loses: 3, crashes: 2}),
	}, specification)
}

// TestSpecificationMargin takes away the margin beside a slow clock.
func TestSpecificationMargin(t *testing.T) {
	explore.MustMeet(t, specification(page{lag: 3, asks: 3, renews: 2, stays: 3}))
}
