package explore_test

import (
	"cmp"
	"fmt"
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
		asked, stays int
		lease        lease
		left, renews int // requests, and renewals, that may follow
	}
)

// page is a state of the specification.
type page struct {
	explore.World[int]
	last, owners int
	record       record
	queue        []place
	net          []message
	cl           [2]actor
	gone         []int // owners whose release or leave the engine has executed
}

func (p *page) now() int { return int(p.Now) }

func (p *page) clock(c int) int { return int(p.Local(c)) }

// lasts reports whether a lease has not ended by the clock of c.
func (p *page) lasts(c int) bool { return p.clock(c) < p.cl[c].lease.sent+specTTL-int(p.Margin) }

// claim returns what c relies on.
func (p *page) claim(c int) (explore.Claim[int], bool) {
	l := p.cl[c].lease
	return explore.Claim[int]{Owner: l.owner, Token: int64(l.token)}, l.owner != 0 && l.sure && p.lasts(c)
}

func (p *page) relies(c int) bool {
	_, relies := p.claim(c)
	return relies
}

func (p *page) Copy() *page {
	n := *p
	n.queue, n.net, n.gone = slices.Clone(p.queue), slices.Clone(p.net), slices.Clone(p.gone)
	return &n
}

func (p *page) send(m message) { p.net = append(p.net, m) }

func of(owner int) int { return owner % 2 } // the client

// grant makes an owner the holder.
func (p *page) grant(owner, sent int) {
	if p.relies(0) || p.relies(1) {
		p.Broken = "3: granted while a client relies on the lock"
	}
	if slices.Contains(p.gone, owner) {
		p.Broken = "4: granted after its owner has left or released"
	}
	p.last++
	p.record = record{owner, p.last, sent, p.now()}
	p.queue = slices.DeleteFunc(p.queue, func(q place) bool { return q.owner == owner })
	p.send(message{kind: "granted", owner: owner, token: p.last, sent: sent})
}

// placeEnd is when the lease of a place ends that begins now.
func (p *page) placeEnd() int {
	if p.Stays == 0 {
		return specTicks + 1
	}
	return p.now() + specEnd
}

func (p *page) free() bool { return p.record.owner == 0 || p.now() >= p.record.renewed+specTTL }

// arrive executes a request at the engine, or brings an answer to its client.
func (p *page) arrive(m message) {
	c := of(m.owner)
	a := &p.cl[c]
	mine := p.record.owner == m.owner && p.record.token == m.token
	at := slices.IndexFunc(p.queue, func(q place) bool { return q.owner == m.owner })
	switch m.kind {
	case "ask", "stay":
		late := p.now() > m.end || slices.Contains(p.gone, m.owner)
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
			p.record.renewed, answer.kind, answer.sent = p.now(), "renewed", m.sent
		}
		p.send(answer)
	case "renewed":
		if l := &a.lease; l.owner == m.owner && p.lasts(c) {
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
		p.gone = append(p.gone, m.owner)
	}
}

func (a *actor) busy() bool { return a.asked != 0 || a.lease.owner != 0 }

func clients(p *page) int  { return p.Clients }
func messages(p *page) int { return len(p.net) }

// take takes a message out of the net.
func (p *page) take(i int) message {
	m := p.net[i]
	p.net = slices.Delete(p.net, i, i+1)
	return m
}

var steps = []explore.Step[*page]{
	{Name: "message # arrives", Of: messages, Then: func(p *page, i int) { p.arrive(p.take(i)) }},
	{Name: "message # arrives, and stays", Of: messages, Fault: explore.Copy, Then: func(p *page, i int) { p.arrive(p.net[i]) }},
	{Name: "message # is lost", Of: messages, Fault: explore.Loss, Then: func(p *page, i int) { p.take(i) }},
	{Name: "grant",
		If:   func(p *page, _ int) bool { return p.free() && len(p.queue) > 0 },
		Then: func(p *page, _ int) { p.grant(p.queue[0].owner, p.queue[0].sent) }},
	{Name: "ask(#)", Of: clients,
		If: func(p *page, c int) bool { return !p.cl[c].busy() && p.cl[c].left > 0 && len(p.net) < specNet },
		Then: func(p *page, c int) {
			p.owners++
			p.cl[c] = actor{asked: 2*p.owners + c, left: p.cl[c].left - 1, renews: p.Renews, stays: p.Stays}
			p.ask("ask", c)
		}},
	{Name: "stay(#)", Of: clients,
		If:   func(p *page, c int) bool { return p.cl[c].asked != 0 && p.cl[c].stays > 0 && len(p.net) < specNet },
		Then: func(p *page, c int) { p.cl[c].stays--; p.ask("stay", c) }},
	{Name: "leave(#)", Of: clients,
		If: func(p *page, c int) bool { return p.cl[c].asked != 0 },
		Then: func(p *page, c int) {
			p.send(message{kind: "leave", owner: p.cl[c].asked})
			p.cl[c].asked = 0
		}},
	{Name: "renew(#)", Of: clients,
		If: func(p *page, c int) bool {
			return p.cl[c].lease.owner != 0 && p.cl[c].renews > 0 && len(p.net) < specNet
		},
		Then: func(p *page, c int) {
			p.cl[c].renews--
			p.send(message{kind: "renew", owner: p.cl[c].lease.owner, token: p.cl[c].lease.token, sent: p.clock(c)})
		}},
	{Name: "release(#)", Of: clients,
		If: func(p *page, c int) bool { return p.cl[c].lease.owner != 0 },
		Then: func(p *page, c int) {
			p.send(message{kind: "release", owner: p.cl[c].lease.owner, token: p.cl[c].lease.token})
			p.cl[c].lease = lease{}
		}},
	{Name: "tell(#)", Of: clients,
		If:   func(p *page, c int) bool { return p.cl[c].lease.owner != 0 && !p.relies(c) },
		Then: func(p *page, c int) { p.cl[c].lease = lease{} }},
	{Name: "crash(#)", Of: clients, Fault: explore.Crash,
		If:   func(p *page, c int) bool { return p.cl[c].busy() },
		Then: func(p *page, c int) { p.cl[c] = actor{left: p.cl[c].left} }},
	{Name: "pass",
		If: func(p *page, _ int) bool { return p.now() < specTicks },
		Then: func(p *page, _ int) {
			p.Now++
			p.queue = slices.DeleteFunc(p.queue, func(q place) bool { return q.until <= p.now() })
		}},
}

// ask sends what has an end.
func (p *page) ask(kind string, c int) {
	p.send(message{kind: kind, owner: p.cl[c].asked, sent: p.clock(c), end: p.now() + specEnd})
}

func (p *page) Look() {
	slices.SortFunc(p.net, func(a, b message) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), a.owner-b.owner, a.token-b.token, a.sent-b.sent, a.end-b.end)
	})
	p.Rely(p.claim)
}

func (p *page) Check() string { return p.Judge(p.claim, nil, nil) }

func (p *page) Key(k *explore.Key) {
	n := *p
	n.Bounds = nil // always the same
	*k = fmt.Append(*k, n)
}

func (p *page) Show() string { return p.Line(p.claim) }

func specification(b explore.Bounds) explore.Model[*page] {
	p := &page{World: explore.NewWorld[int](&b)}
	for c := range p.cl {
		p.cl[c].left = b.Acquires
	}
	return explore.Model[*page]{
		Init: p, Steps: steps, Limit: 3_000_000,
	}
}

func TestSpecification(t *testing.T) {
	explore.Exhaust(t, []explore.Bounds{
		{Name: "2 clients", Clients: 2, Acquires: 1, Margin: 1},
		{Slow: true, Name: "2 clients, 1 renewal", Clients: 2, Acquires: 1, Renews: 1, Margin: 1},
		{Name: "2 clients, 1 doubled message", Clients: 2, Acquires: 1, Copies: 1, Margin: 1},
		{Name: "2 clients, 1 crash", Clients: 2, Acquires: 1, Crashes: 1, Margin: 1},
	}, specification)
}

func TestWalkSpecification(t *testing.T) {
	explore.Roam(t, []explore.Bounds{
		{Name: "the specification", Clients: 2, Acquires: 3, Renews: 2, Stays: 3, Copies: 3, Losses: 3, Crashes: 2, Margin: 1},
	}, specification)
}

// TestSpecificationMargin takes away the margin beside a slow clock.
func TestSpecificationMargin(t *testing.T) {
	explore.MustBreak(t, explore.Walk(specification(explore.Bounds{Clients: 2, Acquires: 3, Renews: 2, Stays: 3, Rates: [explore.MostClients]float64{1, 0.7}}), 1, 1_000_000, 2))
}
