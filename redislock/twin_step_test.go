package redislock_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/twin"
)

// step makes one call.
func (p *play) step(t testing.TB) error {
	t.Helper()
	switch n := p.rand.IntN(100); {
	case n < 37:
		return p.acquire(t)
	case n < 56:
		return p.release(t)
	case n < 63:
		return p.leave(t)
	case n < 73:
		return p.touch(t)
	case n < 76:
		return p.touchAll(t)
	case n < 80:
		return p.renew(t)
	case n < 84:
		return p.confirm(t)
	case n < 87:
		return p.resize(t)
	case n < 89:
		return p.breaks(t)
	case n < 92:
		return p.together(t)
	case n < 95:
		return p.adopt(t)
	default:
		return p.accident(t)
	}
}

func (p *play) acquire(t testing.TB) error {
	t.Helper()
	e := p.request()
	e.Until = p.until()
	wait, place := !p.chance(3), p.chance(3)
	letters := "-"
	if wait {
		letters = "w"
	}
	if place {
		letters += "p"
	}
	if !p.chance(4) {
		e.Sent = p.sent()
		letters += e.Sent
	}
	args := p.args(e.Owner, e.Desc, e.Until, letters)
	w := strings.Fields(e.Desc)
	common := w[1] == "x" && w[5] == "0" && p.Quarantine == 0
	if common {
		args = append(args, w[4], fmt.Sprint(p.Retention))
	}
	return p.same(t, "acquire", p.Acquire(e.Request, wait, place, common), nil, args...)
}

// release is a new one mostly, or the last one once more.
func (p *play) release(t testing.TB) error {
	t.Helper()
	if p.releases == 0 || !p.chance(4) {
		p.releases++
		p.last = p.holder()
	}
	id, late := fmt.Sprint(p.releases), p.late()
	args := p.args(p.last.Owner, p.last.Token, id)
	if late > 0 {
		args = append(args, fmt.Sprint(late))
	}
	return p.same(t, "release", p.Release(p.last.Owner, p.last.Token, id, late), nil, args...)
}

func (p *play) breaks(t testing.TB) error {
	t.Helper()
	if !p.chance(2) {
		owner := p.holder().Owner
		return p.same(t, "break", p.Break("why", owner), nil, p.args("why", owner)...)
	}
	return p.same(t, "break", p.Break("why", ""), nil, p.args("why")...)
}

func (p *play) leave(t testing.TB) error {
	t.Helper()
	e, late := p.request(), p.late()
	args := p.args(e.Owner, e.Desc)
	if late > 0 {
		args = append(args, fmt.Sprint(late))
	}
	return p.same(t, "leave", p.Leave(e.Request, late), nil, args...)
}

// touch is by a client that has requests, or had some.
func (p *play) touch(t testing.TB) error {
	t.Helper()
	first := p.request()
	client, _, _ := strings.Cut(first.Desc, " ")
	var mine []twin.Entry
	for _, e := range p.asked {
		if strings.HasPrefix(e.Desc, client+" ") && len(mine) < 3 {
			e.Ticket = p.Now - p.rand.Int64N(1_000_000)
			mine = append(mine, e)
		}
	}
	oldest, back := mine[0], mine
	if !p.chance(3) {
		back = nil
	}
	until := p.until()
	sent := p.sent()
	args := p.args(client, until, sent, oldest.Owner+" "+oldest.Desc)
	for _, e := range back {
		args = append(args, fmt.Sprint(e.Ticket), e.Owner+" "+e.Desc)
	}
	return p.same(t, "touch", p.Touch(client, sent, until, oldest, back), nil, args...)
}

// sent is a time of a client's own.
func (p *play) sent() string { return fmt.Sprint(1 + p.rand.IntN(1000)) }

// touchAll is a touch together with other names, of which there are none.
func (p *play) touchAll(t testing.TB) error {
	t.Helper()
	e := p.request()
	client, _, _ := strings.Cut(e.Desc, " ")
	until, sent := p.until(), p.sent()
	return p.same(t, "touchall", p.TouchAll(client, sent, until, e.Request), []string{p.Alive(client), twin.Lock},
		"fencelock:2:", fmt.Sprint(until), sent, e.Owner+" "+e.Desc)
}

func (p *play) renew(t testing.TB) error {
	t.Helper()
	h := p.holder()
	var left []string
	told := p.Now%2 == 0
	if told {
		left = []string{"left"}
	}
	if h.Shared { // as one that is confirmed
		return p.same(t, "confirm", p.Confirm(h.Owner, h.Token, 5000, 0, told), nil, append(p.args(h.Owner, h.Token, 5000, 0), left...)...)
	}
	args := append([]string{fmt.Sprintf("fencelock:2 %s %d ", h.Owner, h.Token), "5000"}, left...)
	return p.same(t, "renew", p.Renew(h.Owner, h.Token, 5000, told), []string{twin.Lock}, args...)
}

func (p *play) confirm(t testing.TB) error {
	t.Helper()
	h := p.holder()
	minHold := int64(p.rand.IntN(2) * 900)
	return p.same(t, "confirm", p.Confirm(h.Owner, h.Token, 5000, minHold, false), nil, p.args(h.Owner, h.Token, 5000, minHold)...)
}

// adopt is by a new owner mostly, of one that may be adopted, or the last one once more.
func (p *play) adopt(t testing.TB) error {
	t.Helper()
	if p.adopter.Owner == "" || !p.chance(4) {
		p.adopted, p.adopter = p.holder(), p.request()
		if w := strings.Fields(p.adopted.Desc); len(w) > 4 && !p.chance(4) {
			life := []string{"100", "1000", "30000"}[p.rand.IntN(3)]
			p.adopter.Owner = fmt.Sprintf("o%d", len(p.asked))
			p.adopter.Desc = strings.Join([]string{w[0], w[1], w[2], w[3], life, "0", "1", "host", "adopts"}, " ")
			p.asked = append(p.asked, p.adopter)
		}
	}
	e, h := p.adopter, p.adopted
	e.Until = p.until()
	return p.same(t, "adopt", p.Adopt(e.Request, h), nil, p.args(e.Owner, e.Desc, e.Until, h.Owner, h.Token)...)
}

// resize is of the last version, an old one, or one that was just asked for.
func (p *play) resize(t testing.TB) error {
	t.Helper()
	limit, version := fmt.Sprint(1+p.rand.IntN(6)), p.Now+int64(p.rand.IntN(3)-1)*1000
	if p.chance(3) {
		version = cmp.Or(p.version, 1)
	}
	if p.chance(4) {
		return p.same(t, "resize", p.Resize(limit, 0), nil, p.args(limit)...)
	}
	p.version = version
	return p.same(t, "resize", p.Resize(limit, version), nil, p.args(limit, version)...)
}

// together is what goes together with others, alone.
func (p *play) together(t testing.TB) error {
	t.Helper()
	if !p.chance(4) { // or the last one once more
		p.batches++
	}
	keys, id := []string{twin.Lock}, fmt.Sprint(p.batches)
	begin := []string{"fencelock:2:", fmt.Sprint(p.Retention)}
	if p.chance(3) {
		h := p.holder()
		return p.same(t, "gather", p.Free(h.Owner, h.Token, id), keys, append(begin, fmt.Sprint(p.Now), id, "r", h.Owner, fmt.Sprint(h.Token))...)
	}
	e := p.request()
	e.Until = p.until()
	e.Desc = strings.Replace(e.Desc, " s ", " x ", 1)
	return p.same(t, "gather", p.Take(e.Request, id), keys, append(begin, fmt.Sprint(e.Until), id, "a", e.Owner, e.Desc, strings.Fields(e.Desc)[4])...)
}

// accident is what others do, and what is lost.
func (p *play) accident(t testing.TB) error {
	t.Helper()
	p.Said = nil
	p.Sweep()
	client := []string{"c1", "c2", "c3"}[p.rand.IntN(3)]
	switch p.rand.IntN(7) {
	case 0:
		p.Put(twin.Lock, "somebody", 5000)
		return p.same(t, "set", "ok", nil, "somebody", "5000")
	case 1, 2:
		p.Delete(twin.Lock)
		return p.same(t, "del", "ok", nil, twin.Lock)
	case 3:
		p.Delete(twin.Queue)
		return p.same(t, "del", "ok", nil, twin.Queue)
	case 4:
		p.Delete(twin.Fence)
		return p.same(t, "del", "ok", nil, twin.Fence)
	default:
		p.Listening[client] = !p.Listening[client]
		return p.same(t, "ear", "ok", nil, map[bool]string{true: "SADD", false: "SREM"}[p.Listening[client]], "fencelock:2:"+client)
	}
}
