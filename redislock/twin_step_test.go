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
	case n < 38:
		return p.acquire(t)
	case n < 58:
		return p.release(t)
	case n < 64:
		return p.leave(t)
	case n < 76:
		return p.touch(t)
	case n < 80:
		return p.renew(t)
	case n < 84:
		return p.confirm(t)
	case n < 87:
		return p.resize(t)
	case n < 89:
		return p.breaks(t)
	case n < 93:
		return p.together(t)
	default:
		return p.accident(t)
	}
}

func (p *play) acquire(t testing.TB) error {
	t.Helper()
	e := p.request()
	e.Until = p.until()
	asks, wait, place, again := "", !p.chance(3), p.chance(3), p.chance(4)
	for i, asked := range []bool{wait, place, again} {
		if asked {
			asks += string("wpa"[i])
		}
	}
	args := []string{p.common(cmp.Or(asks, "-")), e.Owner, e.Desc, fmt.Sprint(e.Until)}
	fast := int64(0)
	if w := strings.Fields(e.Desc); w[1] == "x" && w[4] == "0" && p.Quarantine == 0 && !again && !p.chance(3) {
		fast = number64(t, w[3])
		args = append(args, w[3], fmt.Sprint(p.Retention))
	} else if w[1] == "s" && w[4] == "0" && p.Quarantine == 0 && !again && !strings.Contains(w[2], "/") && !p.chance(3) {
		args = append(args, w[3], fmt.Sprint(p.Retention), w[2]) // answers as if there were no shorter way
	}
	return p.same(t, "acquire", p.Acquire(e.Request, wait, place, again, fast), nil, args...)
}

func (p *play) release(t testing.TB) error {
	t.Helper()
	owner, token, mode := p.holder()
	late := p.late()
	args := []string{p.common("-"), "fencelock " + owner + " " + token + " "}
	if mode == "s" {
		args = []string{p.common("-"), owner + " " + token + " ", token}
	}
	if late > 0 {
		if mode == "x" {
			args = append(args, "")
		}
		args = append(args, fmt.Sprint(late))
	}
	return p.same(t, "release", p.Release(owner, token, mode, late), nil, args...)
}

func (p *play) breaks(t testing.TB) error {
	t.Helper()
	if !p.chance(2) {
		owner, _, _ := p.holder()
		return p.same(t, "break", p.Break("why", owner), nil, p.common("-"), "why", owner)
	}
	return p.same(t, "break", p.Break("why", ""), nil, p.common("-"), "why")
}

func (p *play) leave(t testing.TB) error {
	t.Helper()
	e, late, heard := p.request(), p.late(), int64(0)
	if p.chance(2) {
		heard = p.Now
	}
	return p.same(t, "leave", p.Leave(e.Request, heard, late), nil, p.common("-"), e.Owner, e.Desc, fmt.Sprint(heard), fmt.Sprint(late))
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
	args := []string{p.common("-"), client, "1000", fmt.Sprint(until), oldest.Owner + " " + oldest.Desc}
	for _, e := range back {
		args = append(args, fmt.Sprint(e.Ticket), e.Owner+" "+e.Desc)
	}
	return p.same(t, "touch", p.Touch(client, 1000, until, oldest, back), nil, args...)
}

func (p *play) renew(t testing.TB) error {
	t.Helper()
	owner, token, mode := p.holder()
	if mode == "s" { // as one that is confirmed
		return p.same(t, "confirm", p.Confirm(owner, token, mode, 5000, 0), nil, p.common("-"), owner, token, mode, "5000", "0")
	}
	return p.same(t, "renew", p.Renew(owner, token, 5000), []string{lockKey}, "fencelock "+owner+" "+token+" ", "5000")
}

func (p *play) confirm(t testing.TB) error {
	t.Helper()
	owner, token, mode := p.holder()
	minHold := int64(p.rand.IntN(2) * 900)
	return p.same(t, "confirm", p.Confirm(owner, token, mode, 5000, minHold), nil, p.common("-"), owner, token, mode, "5000", fmt.Sprint(minHold))
}

// resize is of the last version, an old one, or one that was just asked for.
func (p *play) resize(t testing.TB) error {
	t.Helper()
	limit, version := fmt.Sprint(1+p.rand.IntN(6)), p.Now+int64(p.rand.IntN(3)-1)*1000
	if p.chance(3) {
		version = cmp.Or(p.version, 1)
	}
	if p.chance(4) {
		return p.same(t, "resize", p.Resize(limit, 0), nil, p.common("-"), limit)
	}
	p.version = version
	return p.same(t, "resize", p.Resize(limit, version), nil, p.common("-"), limit, fmt.Sprint(version))
}

// together is what goes together with others, alone.
func (p *play) together(t testing.TB) error {
	t.Helper()
	keys, retention := []string{lockKey, fenceKey}, fmt.Sprint(p.Retention)
	if p.chance(3) {
		owner, token, _ := p.holder()
		return p.same(t, "gather", p.Free(owner, token), keys, retention, "r", fmt.Sprint(p.Now), "fencelock "+owner+" "+token+" ")
	}
	e := p.request()
	e.Until = p.until()
	e.Desc = strings.Replace(e.Desc, " s ", " x ", 1)
	return p.same(t, "gather", p.Take(e.Request, 5000), keys, retention, "a", fmt.Sprint(e.Until), "fencelock "+e.Owner+" ", e.Desc, "5000")
}

// accident is what others do, and what is lost.
func (p *play) accident(t testing.TB) error {
	t.Helper()
	p.Said = nil
	p.Sweep()
	client := []string{"c1", "c2", "c3"}[p.rand.IntN(3)]
	switch p.rand.IntN(8) {
	case 0:
		p.Lock = twin.Text{Value: "somebody", Until: p.Now/1000 + 5000}
		return p.same(t, "set", "ok", nil, "somebody", "5000")
	case 1, 2:
		p.Lock = twin.Text{}
		return p.same(t, "del", "ok", nil, lockKey)
	case 3:
		p.Queue = twin.Set{}
		return p.same(t, "del", "ok", nil, "queue:{lock:n}")
	case 4:
		p.Fence = twin.Text{}
		return p.same(t, "del", "ok", nil, fenceKey)
	case 5: // as somebody else writes it, without the queue or what was told to whom
		text := strings.Fields(p.Fence.Value)
		if len(text) < 4 {
			text = []string{"1700000000000000", "1700000000000000", "c1", "0"}
		}
		if text = text[:4]; !p.chance(3) {
			text = append(text, "q")
		}
		p.Fence = twin.Text{Value: strings.Join(text, " "), Until: p.Now/1000 + 600_000}
		return p.same(t, "set", "ok", []string{fenceKey}, p.Fence.Value, "600000")
	default:
		p.Listening[client] = !p.Listening[client]
		return p.same(t, "ear", "ok", nil, map[bool]string{true: "SADD", false: "SREM"}[p.Listening[client]], "fencelock:"+client)
	}
}
