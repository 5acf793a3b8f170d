package twin

import (
	"fmt"
	"strings"
)

const (
	patience = 3     // TTLs
	touchMax = 20000 // milliseconds
	grantMax = 2000  // milliseconds
	batch    = 64
	purge    = 256
	seats    = 8
)

// patienceFor is for how long the client of a request is believed to live.
func patienceFor(ttl int64) int64 { return patience * min(ttl, touchMax) }

// desc is a request as text, without its owner.
type desc struct {
	client, mode, limit string
	weight              int64
	ttl, minHold        int64
}

func readDesc(text string) (d desc, ok bool) {
	w := strings.SplitN(text, " ", 6)
	if len(w) < 6 {
		return d, false
	}
	limit, weight, weighted := strings.Cut(w[2], "/")
	d = desc{client: w[0], mode: w[1], limit: limit, weight: 1, ttl: number(w[3]), minHold: number(w[4])}
	if weighted {
		d.weight = number(weight)
	}
	return d, true
}

// holderText is "owner token since desc", cut into its parts.
type holderText struct {
	owner, token string
	desc
}

func readHolder(text string) (h holderText) {
	w := strings.SplitN(text, " ", 4)
	if len(w) == 4 {
		h.owner, h.token = w[0], w[1]
		h.desc, _ = readDesc(w[3])
	}
	return h
}

// begin is what every script does first.
func (n *Name) begin() {
	n.fence, n.dirty = readFence(n.Fence.Value), false
	n.state, n.limit, n.holder, n.stands, n.weighted = "free", "", "", false, false
	n.loadLock()
}

// loadLock finds out who holds the lock, and ends shared leases that are over.
func (n *Name) loadLock() {
	text := n.Lock.Value
	if n.Lock.Until == 0 {
		return
	}
	n.stands = true
	rest, ours := strings.CutPrefix(text, "fencelock ")
	if !ours {
		n.state, n.holder = "foreign", text[:min(len(text), 200)]
		return
	}
	limit, isShared := strings.CutPrefix(rest, "shared ")
	if !isShared {
		n.state, n.holder = "x", text
		return
	}
	n.state = "s"
	n.limit, n.weighted = strings.CutSuffix(limit, " w")
	over := 0
	for _, m := range n.Shared.sorted() {
		if m.Score > n.ms() || over == purge {
			break
		}
		over++
		who, found := n.seated(m.Text)
		n.drop(m.Text, who)
		if found && n.fence.lined {
			n.suspend(readHolder(who).client, number(m.Text))
		}
	}
	if over > 0 && len(n.Shared.Scores) == 0 {
		n.state = "free"
	}
}

// seated returns the shared holder with a token.
func (n *Name) seated(token string) (who string, ok bool) {
	for _, m := range n.Meta.sorted() {
		if m.Score == number(token) {
			return m.Text, true
		}
	}
	return "", false
}

func (n *Name) drop(token, who string) {
	for _, m := range n.Meta.sorted() {
		if m.Score == number(token) {
			n.Meta.remove(m.Text)
		}
	}
	n.Shared.remove(token)
	if who != "" {
		n.counted(-1, -readHolder(who).weight)
	}
}

// counted keeps the sum of the weights, if there is one.
func (n *Name) counted(count, weight int64) {
	if n.weighted && n.fence.summed > 0 {
		n.fence.sum += weight
		n.fence.summed += count
		n.dirty = true
	}
}

func (n *Name) note(member string, score, till int64) {
	n.Alive.add(member, score)
	n.Alive.expire(max(till, n.ms()+2*patienceFor(touchMax)), n.ms())
}

func (n *Name) noteAlive(client string) { n.note(client, max(n.Now, n.fence.last), 0) }

func (n *Name) bar(member string, till, after int64) {
	till = floorDiv(till, 1000)
	n.fence.barred = max(n.fence.barred, till+after)
	n.note(member, -1000*till, n.fence.barred)
	n.dirty = true
}

func (n *Name) barClient(client string) { n.bar(client, n.Now, patienceFor(touchMax)) }

func (n *Name) barOwner(owner string, till int64) { n.bar(owner, till, grantMax) }

func (n *Name) suspend(client string, token int64) {
	if client == "-" {
		return
	}
	newest := max(n.Now, n.fence.last)
	if heard := n.Alive.Scores[client]; heard >= token && heard <= newest {
		return
	}
	joined := n.Queue.sorted()
	for i := len(joined) - 1; i >= 0 && i >= len(joined)-1-purge && joined[i].Score >= token; i-- {
		_, text, _ := strings.Cut(joined[i].Text, " ")
		if d, ok := readDesc(text); ok && d.client == client && joined[i].Score <= newest {
			return
		}
	}
	n.barClient(client)
}

func (n *Name) lives(client string, ttl, ticket int64) bool {
	since := n.Now - 1000*patienceFor(ttl)
	if n.fence.barred <= n.ms() && ticket > since {
		return true
	}
	heard := n.Alive.Scores[client]
	return heard >= 0 && max(heard, ticket) > since
}

func (n *Name) lasting(ttl int64, fresh bool) {
	f, life := &n.fence, patienceFor(ttl)
	if f.lasts < n.ms()+life {
		f.lasts, n.dirty, fresh = n.ms()+2*life, true, true
	}
	if fresh {
		n.Queue.expire(f.lasts, n.ms())
	}
	if !f.lined {
		f.lined, f.told, n.dirty = true, "-", true
	}
}

// agree reports whether two shared requests may have these limits.
func (n *Name) agree(a, b string) bool {
	return a == b || n.fence.resized != "" && a != "0" && b != "0"
}

// taken is the weight of the shared holders together.
func (n *Name) taken() int64 {
	count := int64(len(n.Shared.Scores))
	if !n.weighted || count == 0 {
		return count
	}
	if count != n.fence.summed {
		n.fence.sum, n.fence.summed, n.dirty = 0, count, true
		for _, m := range n.Meta.sorted() {
			n.fence.sum += readHolder(m.Text).weight
		}
	}
	return n.fence.sum
}

func (n *Name) fits(limit string, weight int64) bool {
	if n.state == "free" || limit == "0" {
		return true
	}
	if n.fence.resized != "" {
		limit = n.fence.resized
	}
	return n.taken()+weight <= number(limit)
}

// prolong makes the keys of the shared holders live for so long.
func (n *Name) prolong(ttl int64) {
	n.Lock.Until = max(n.Lock.Until, n.ms()+ttl)
	n.Shared.expire(n.Lock.Until, n.ms())
	n.Meta.expire(n.Lock.Until, n.ms())
}

// addHolder makes a request a holder for ttl.
func (n *Name) addHolder(owner, text string, ttl int64) (token, floor int64) {
	d, _ := readDesc(text)
	f := &n.fence
	token = max(f.last+1, n.Now)
	floor = token
	who := fmt.Sprintf("%s %d %d %s", owner, token, n.Now, text)
	switch {
	case d.mode == "x":
		n.state, n.holder, n.stands = "x", "fencelock "+who, true
		n.Lock = Text{n.holder, n.ms() + ttl}
	default:
		first := n.state == "free"
		if first {
			n.stands, n.state, n.limit, n.weighted = true, "s", d.limit, d.weight > 1
			n.Lock = Text{n.sharedText(), n.ms() + ttl}
			n.Shared, n.Meta = Set{}, Set{}
		} else if d.weight > 1 && !n.weighted {
			n.weighted = true
			n.Lock.Value = n.sharedText()
			f.summed = int64(len(n.Shared.Scores))
			f.sum = f.summed
		}
		n.Shared.add(fmt.Sprint(token), n.ms()+ttl)
		n.Meta.add(who, token)
		if first {
			f.sum, f.summed = d.weight, 1
		} else {
			n.counted(1, d.weight)
		}
		n.prolong(ttl)
		m, _ := n.Meta.first()
		floor = m.Score
	}
	f.last, f.granted, f.grantee, n.dirty = token, n.Now, "-", true
	return token, floor
}

func (n *Name) sharedText() string {
	if n.weighted {
		return "fencelock shared " + n.limit + " w"
	}
	return "fencelock shared " + n.limit
}

func (n *Name) removeHolder(token, who string) {
	n.drop(token, who)
	if m, ok := n.Shared.last(); ok {
		if n.Lock.Until = m.Score; m.Score <= n.ms() {
			n.Lock = Text{}
		}
	} else {
		n.state = "free"
	}
}

// publish publishes to a client and returns false if surely nobody listens.
func (n *Name) publish(client, text string) bool {
	n.Said = append(n.Said, client+" "+text)
	return n.Listening[client] || !n.Counts
}
