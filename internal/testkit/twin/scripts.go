package twin

import (
	"fmt"
	"slices"
	"strings"
)

// A Request is what the scripts are told of a request.
type Request struct {
	Owner, Desc string
	Until       int64 // when it is served at the latest, in microseconds
}

// call begins a script.
func (n *Name) call() {
	n.Said = nil
	n.Sweep()
}

// Acquire is the acquire script. Fast is the TTL of a request that may take the
// way for free locks, 0 for others.
func (n *Name) Acquire(r Request, wait, place, again bool, fast int64) string {
	n.call()
	if r.Until < n.Now {
		return fmt.Sprintf("late %d", n.Now)
	}
	undone := false
	if fast > 0 && n.Lock.Until == 0 {
		if n.common() {
			n.take(r, fast)
			return fmt.Sprintf("taken %d", n.Now)
		}
		undone = n.Fence.Until > 0
	}
	n.begin()
	if undone {
		n.dirty = true
		n.commit()
		n.dirty = false
	}
	if n.fence.barred > n.ms() && n.Alive.Scores[r.Owner] < 0 {
		n.commit()
		return fmt.Sprintf("late %d", n.Now)
	}
	d, _ := readDesc(r.Desc)
	if wait && n.fence.barred > n.ms() {
		n.noteAlive(d.client)
	}
	n.advance(false)
	answer := n.enter(r, d, wait, again)
	if answer == "" {
		answer = n.join(r, d, place)
	}
	n.commit()
	return answer
}

// common reports whether a free lock can be taken without a further look.
func (n *Name) common() bool {
	if n.Fence.Until == 0 {
		return len(n.Queue.Scores) == 0
	}
	return strings.HasSuffix(n.Fence.Value, " 0") && n.Fence.Value < fmt.Sprint(n.Now)
}

func (n *Name) take(r Request, ttl int64) {
	n.Lock = Text{fmt.Sprintf("fencelock %s %d %d %s", r.Owner, n.Now, n.Now, r.Desc), n.ms() + ttl}
	n.Fence = Text{fmt.Sprintf("%d %d - 0", n.Now, n.Now), n.ms() + n.Retention}
}

// enter grants or refuses; it returns nothing for a request that has to wait.
func (n *Name) enter(r Request, d desc, wait, again bool) string {
	f := &n.fence
	if token, floor, ok := n.ownLease(r.Owner, d, again); ok {
		if d.minHold > 0 {
			f.notBefore, n.dirty = max(f.notBefore, n.Now+d.minHold*1000), true
		}
		return fmt.Sprintf("granted %d %s %s", n.Now, token, floor)
	}
	if n.state == "s" && d.mode == "s" && !n.agree(n.limit, d.limit) {
		return fmt.Sprintf("limit %d %s", n.Now, n.limit)
	}
	room := n.state == "free" || n.state == "s" && d.mode == "s" && !f.lined && n.fits(d.limit, d.weight)
	if room && f.notBefore <= n.Now && !f.lined {
		left := n.quarantined()
		if left > 0 && !wait {
			return fmt.Sprintf("quarantine %d %d", n.Now, left)
		}
		if left == 0 {
			token, floor := n.addHolder(r.Owner, r.Desc, d.ttl)
			if d.minHold > 0 {
				f.notBefore = n.Now + d.minHold*1000
			}
			return fmt.Sprintf("granted %d %d %d", n.Now, token, floor)
		}
	}
	if !wait {
		text, _ := n.blockedInfo("")
		return fmt.Sprintf("held %d %s", n.Now, text)
	}
	return ""
}

// ownLease extends what owner holds already. Unless an earlier try may have worked, it looks
// at the newest shared holders only.
func (n *Name) ownLease(owner string, d desc, again bool) (token, floor string, ok bool) {
	if rest, own := strings.CutPrefix(n.holder, "fencelock "+owner+" "); n.state == "x" && own {
		n.Lock.Until = n.ms() + d.ttl
		token, _, _ = strings.Cut(rest, " ")
		return token, token, true
	}
	if n.state != "s" || d.mode != "s" {
		return "", "", false
	}
	newest := n.Meta.sorted()
	slices.Reverse(newest)
	if !again {
		newest = newest[:min(len(newest), seats)]
	}
	for _, m := range newest {
		if h := readHolder(m.Text); h.owner == owner {
			n.prolong(d.ttl)
			n.Shared.add(h.token, n.ms()+d.ttl)
			first, _ := n.Meta.first()
			return h.token, fmt.Sprint(first.Score), true
		}
	}
	return "", "", false
}

// join puts a request into the queue.
func (n *Name) join(r Request, d desc, place bool) string {
	entry := r.Owner + " " + r.Desc
	ticket, queued := n.Queue.Scores[entry]
	if !queued {
		newest, any := n.Queue.last()
		ticket = max(n.Now, newest.Score+1)
		n.Queue.add(entry, ticket)
		n.lasting(d.ttl, !any)
	}
	text, left := n.blockedInfo(d.client)
	if left > grantMax || left < 0 {
		n.noteAlive(d.client)
	}
	position := 0
	if place || n.state == "foreign" {
		position = n.Queue.place(entry)
	}
	return fmt.Sprintf("queued %d %d %d %s", n.Now, ticket, position, text)
}

// Release is the release script. Late is until when a late try of the request must
// not be served, 0 for nothing.
func (n *Name) Release(owner, token, mode string, late int64) string {
	n.call()
	own := "fencelock " + owner + " " + token + " "
	standing := mode == "s" || strings.HasPrefix(n.Lock.Value, own)
	if mode == "x" && late == 0 {
		if !standing {
			return "gone"
		}
		if n.Fence.Until > 0 && !strings.HasSuffix(n.Fence.Value, " q") {
			n.Lock = Text{}
			return "ok "
		}
	}
	n.begin()
	if mode == "x" {
		if standing {
			n.state = "free"
		}
	} else {
		who, found := n.seated(token)
		standing = n.state == "s" && found && readHolder(who).owner == owner
		if standing {
			n.removeHolder(token, who)
		}
	}
	if standing {
		n.advance(true)
	}
	if late > n.Now {
		n.barOwner(owner, late)
	}
	n.commit()
	if standing {
		return "ok "
	}
	return "gone"
}

// Leave is the leave script.
func (n *Name) Leave(r Request, heard, late int64) string {
	n.call()
	n.begin()
	d, _ := readDesc(r.Desc)
	done := "left"
	if !n.Queue.remove(r.Owner + " " + r.Desc) {
		done = n.giveBack(r.Owner, d.minHold > 0)
	}
	if word, known := n.Alive.Scores[d.client]; known && word >= 0 && word <= heard {
		n.Alive.remove(d.client)
	}
	if late > n.Now {
		n.barOwner(r.Owner, late)
	}
	n.advance(done == "released")
	n.commit()
	return done
}

// giveBack ends what owner was granted, and the minimum hold that began with it.
func (n *Name) giveBack(owner string, closed bool) (done string) {
	done = "gone"
	if n.state == "x" && strings.HasPrefix(n.holder, "fencelock "+owner+" ") {
		n.state, done = "free", "released"
	} else if n.state == "s" {
		for _, m := range n.Meta.sorted() {
			if h := readHolder(m.Text); h.owner == owner {
				n.removeHolder(h.token, m.Text)
				done = "released"
			}
		}
	}
	if done == "released" && closed && n.fence.notBefore > n.Now {
		n.fence.notBefore, n.dirty = 0, true
	}
	return done
}

// Entry is a request and its place in the queue.
type Entry struct {
	Request
	Ticket int64
}

// Touch is the touch script.
func (n *Name) Touch(client string, ttl, until int64, first Entry, back []Entry) string {
	n.call()
	n.begin()
	if until < n.Now {
		n.commit()
		return fmt.Sprintf("late %d", n.Now)
	}
	cut := n.Now - 1000*patienceFor(touchMax)
	for _, m := range n.Alive.sorted() {
		if -cut <= m.Score && m.Score <= cut {
			n.Alive.remove(m.Text)
		}
	}
	n.noteAlive(client)
	again := false
	for _, e := range back {
		if strings.HasPrefix(n.holder, "fencelock "+e.Owner+" ") {
			continue
		}
		again = true
		if text := e.Owner + " " + e.Desc; n.Queue.place(text) == 0 {
			n.Queue.add(text, e.Ticket)
		}
	}
	known := n.Queue.place(first.Owner + " " + first.Desc)
	if again || known > 0 || n.fence.lined {
		n.lasting(ttl, again)
	}
	place := known
	if known == 0 || n.state != "x" && n.state != "foreign" {
		n.advance(false)
		place = n.Queue.place(first.Owner + " " + first.Desc)
	}
	text, _ := n.blockedInfo(client)
	n.commit()
	return fmt.Sprintf("%d %d %d %s", n.Now, min(known, 1), place, text)
}

// Confirm is the confirm script.
func (n *Name) Confirm(owner, token, mode string, ttl, minHold int64) string {
	n.call()
	n.begin()
	own := owner + " " + token + " "
	switch who, _ := n.seated(token); {
	case n.state == "x":
		if mode != "x" || !strings.HasPrefix(n.holder, "fencelock "+own) {
			return "gone"
		}
		n.Lock.Until = n.ms() + ttl
	case n.state != "s" || mode != "s" || !strings.HasPrefix(who, own):
		n.commit()
		return "gone"
	default:
		n.prolong(ttl)
		n.Shared.add(token, n.ms()+ttl)
		n.commit()
		return "ok"
	}
	if minHold > 0 {
		n.fence.notBefore, n.dirty = max(n.fence.notBefore, n.Now+minHold*1000), true
	}
	n.commit()
	return "ok"
}

// Renew is the renew script.
func (n *Name) Renew(owner, token string, ttl int64) string {
	n.call()
	if !strings.HasPrefix(n.Lock.Value, "fencelock "+owner+" "+token+" ") {
		return "gone"
	}
	n.Lock.Until = n.ms() + ttl
	return "ok"
}

// Resize is the resize script; version 0 asks for one.
func (n *Name) Resize(limit string, version int64) string {
	n.call()
	n.begin()
	f := &n.fence
	if version == 0 {
		n.commit()
		return fmt.Sprintf("version %d", max(f.version+1, n.Now))
	}
	if version > f.version {
		if f.last == 0 {
			f.last = n.Now
		}
		f.resized, f.version, n.dirty = limit, version, true
		n.advance(false)
	}
	n.commit()
	return "ok "
}

// Break is the break script; only is the owner whose acquisition alone ends, "" for all.
func (n *Name) Break(reason, only string) string {
	n.call()
	n.begin()
	if only == "" && n.state == "free" && n.fence.notBefore <= n.Now {
		n.commit()
		return "gone"
	}
	var holders []string
	if n.state == "x" {
		holders = []string{strings.TrimPrefix(n.holder, "fencelock ")}
	}
	for _, m := range n.Meta.sorted() {
		if n.state == "s" {
			holders = append(holders, m.Text)
		}
	}
	all := true
	if only != "" {
		count := len(holders)
		holders = slices.DeleteFunc(holders, func(who string) bool { return readHolder(who).owner != only })
		if len(holders) == 0 {
			n.commit()
			return "gone"
		}
		all = count == len(holders)
	}
	f := &n.fence
	if all {
		n.Lock, n.Shared, n.Meta = Text{}, Set{}, Set{}
		n.state, n.stands, n.weighted, f.notBefore = "free", false, false, 0
	}
	f.last, f.granted, f.grantee, n.dirty = max(f.last+1, n.Now), n.Now, "-", true
	token := f.last
	for _, who := range holders {
		h := readHolder(who)
		if !all {
			n.removeHolder(h.token, who)
		}
		n.publish(h.client, fmt.Sprintf("lost %s %s %s", h.owner, h.token, reason))
	}
	n.advance(true)
	n.commit()
	return fmt.Sprintf("broken %d", token)
}

// Take is what batch does with an acquire.
func (n *Name) Take(r Request, ttl int64) string {
	n.call()
	f := n.Fence.Value
	newer := strings.Compare(f[:min(17, len(f))], fmt.Sprintf("%d ", n.Now)) < 0
	letter := "s"
	switch {
	case r.Until < n.Now:
		letter = "l"
	case n.Lock.Until > 0:
	case n.Fence.Until > 0 && (!strings.HasSuffix(f, " 0") || !newer) || n.Fence.Until == 0 && len(n.Queue.Scores) > 0:
	default:
		n.take(r, ttl)
		letter = "t"
	}
	return fmt.Sprintf("%d %s", n.Now, letter)
}

// Free is what batch does with a release.
func (n *Name) Free(owner, token string) string {
	n.call()
	letter := "s"
	if !strings.HasPrefix(n.Lock.Value, "fencelock "+owner+" "+token+" ") {
		letter = "g"
	} else if n.Fence.Until > 0 && !strings.HasSuffix(n.Fence.Value, " q") {
		letter, n.Lock = "o", Text{}
	}
	return fmt.Sprintf("%d %s", n.Now, letter)
}

// Holders returns the owner, the token and the mode of everybody who holds.
func (n *Name) Holders() (list [][3]string) {
	if rest, ours := strings.CutPrefix(n.Lock.Value, "fencelock "); ours && !strings.HasPrefix(rest, "shared ") {
		h := readHolder(rest)
		list = append(list, [3]string{h.owner, h.token, "x"})
	}
	for _, m := range n.Meta.sorted() {
		h := readHolder(m.Text)
		list = append(list, [3]string{h.owner, h.token, "s"})
	}
	return slices.Clip(list)
}
