package twin

import (
	"fmt"
	"strings"
)

const (
	format   = "fencelock:2 "
	grantMax = 2000   // milliseconds
	queued   = 60_000 // milliseconds
	batch    = 64
	purge    = 512

	// The members of a shared lock are distinguished by score: the total weight is below times, the
	// ends of leases are below tokens, and tokens are above.
	times  = int64(1e11)
	tokens = int64(1e14)
)

// request is an entry of the queue, or a shared holder.
type request struct {
	entry, owner, desc  string
	client, mode, limit string
	weight, ttl         int64
	minHold             int64
}

func read(entry string) (r request, ok bool) {
	w := strings.SplitN(entry, " ", 8)
	if len(w) < 8 {
		return r, false
	}
	return request{entry, w[0], entry[len(w[0])+1:], w[1], w[2], w[3], number(w[4]), number(w[5]), number(w[6])}, true
}

// begin is the common beginning of most scripts: it loads the lock and removes expired holders.
func (n *Name) begin() {
	over := n.loadLock()
	for _, m := range over {
		n.removeHolder(m.text)
	}
	if len(over) > 0 {
		n.settle()
	}
}

// loadLock loads the holders of the lock, and returns the ends of shared leases that have expired.
func (n *Name) loadLock() (over []member) {
	n.mode, n.limit, n.text, n.used, n.lined = "free", "", "", 0, false
	k := n.Keys[Lock]
	if k == nil {
		return nil
	}
	if k.Set == nil {
		n.mode, n.text = "foreign", k.Text[:min(len(k.Text), 200)]
		if strings.HasPrefix(k.Text, format) {
			n.mode, n.text = "x", k.Text
		}
		return nil
	}
	low := n.members(Lock, 0, n.ms())
	head, ours := strings.CutPrefix(low[0].text, format+"shared ")
	if !ours {
		n.mode, n.text = "foreign", low[0].text
		return nil
	}
	n.mode, n.limit, n.used = "s", head, low[0].score
	return low[1:min(len(low), purge)]
}

// sharedHolder returns the shared holder with a token.
func (n *Name) sharedHolder(token int64) string {
	for _, m := range n.members(Lock, token, token) {
		return m.text
	}
	return ""
}

// removeHolder removes a shared holder.
func (n *Name) removeHolder(token string) {
	entry := n.sharedHolder(number(token))
	n.remove(Lock, token)
	n.remove(Lock, entry)
	if r, ok := read(entry); ok {
		n.weigh(-r.weight)
	}
}

func (n *Name) weigh(weight int64) {
	n.used += weight
	n.add(Lock, format+"shared "+n.limit, n.used)
}

// settle makes the lock expire with the lease of its last shared holder.
func (n *Name) settle() {
	ends := n.members(Lock, times, tokens)
	if len(ends) == 0 {
		n.Delete(Lock)
		n.mode = "free"
		return
	}
	n.end(Lock, ends[len(ends)-1].score)
}

func (n *Name) floor(token int64) int64 {
	if n.mode == "s" {
		for _, m := range n.members(Lock, tokens, forever) {
			return m.score
		}
	}
	return token
}

// tokenOf returns the token of a request that already holds the lock, or 0.
func (n *Name) tokenOf(owner, entry string) int64 {
	if n.mode == "s" {
		return n.score(Lock, entry)
	}
	rest, own := strings.CutPrefix(n.text, format+owner+" ")
	if n.mode != "x" || !own {
		return 0
	}
	token, _, _ := strings.Cut(rest, " ")
	return number(token)
}

// everybodys returns the limit that Resize has set. It applies to all requests.
func (n *Name) everybodys() (limit int64, set bool) {
	text, set := n.get(resized)
	first, _, _ := strings.Cut(text, " ")
	return number(first), set
}

func (n *Name) agrees(r request) bool {
	_, set := n.everybodys()
	return r.limit == n.limit || set && r.limit != "0" && n.limit != "0"
}

func (n *Name) fits(r request) bool {
	switch {
	case n.mode == "free":
		return true
	case r.mode == "x" || n.mode != "s":
		return false
	case r.limit == "0":
		return true
	}
	limit, set := n.everybodys()
	if !set {
		limit = number(r.limit)
	}
	return n.used+r.weight <= limit
}

func (n *Name) issue() int64 {
	last, _ := n.get(Fence)
	token := max(n.Now, number(last)+1)
	n.putUntil(Fence, fmt.Sprint(token), floorDiv(max(n.Now, token-1), 1000)+n.Retention)
	return token
}

// addHolder makes a request a holder for ttl.
func (n *Name) addHolder(r request, ttl int64) (token, floor int64) {
	token = n.issue()
	if r.mode == "x" {
		n.mode, n.text = "x", fmt.Sprintf("%s%s %d %s", format, r.owner, token, r.desc)
		n.Put(Lock, n.text, ttl)
		return token, token
	}
	if n.mode == "free" {
		n.mode, n.limit, n.used = "s", r.limit, 0
	}
	n.end(resized, n.ms()+n.Retention)
	n.weigh(r.weight)
	n.add(Lock, r.entry, token)
	n.add(Lock, fmt.Sprint(token), n.ms()+ttl)
	n.settle()
	return token, n.floor(token)
}

// release ends one acquisition, and reports whether it held the lock.
func (n *Name) release(owner string, token int64) bool {
	switch n.mode {
	case "x":
		if !strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)) {
			return false
		}
		n.Delete(Lock)
		n.mode = "free"
		return true
	case "s":
		if !strings.HasPrefix(n.sharedHolder(token), owner+" ") {
			return false
		}
		n.removeHolder(fmt.Sprint(token))
		n.settle()
		return true
	}
	return false
}

// extend renews a lease.
func (n *Name) extend(owner string, token, ttl int64) bool {
	switch {
	case n.mode == "x" && strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)):
		n.end(Lock, n.ms()+ttl)
		return true
	case n.mode == "s" && strings.HasPrefix(n.sharedHolder(token), owner+" "):
		n.add(Lock, fmt.Sprint(token), n.ms()+ttl)
		n.settle()
		return true
	}
	return false
}

func (n *Name) close(owner string, minHold int64) {
	if minHold > n.remains(closed) {
		n.Put(closed, owner, minHold)
	}
}

// mark makes the scripts refuse requests of owner that arrive later. late is the latest time at
// which one may arrive, or 0 if none is in flight.
func (n *Name) mark(owner, id string, late int64) {
	life := int64(0)
	if late > n.Now {
		life = -floorDiv(n.Now-late, 1000)
	}
	n.Put(left+owner, id, life+grantMax)
}

// publish publishes a message to a client. It returns false if it is certain that nobody receives
// it.
func (n *Name) publish(client, text string) bool {
	n.Said = append(n.Said, client+" "+text)
	return n.Listening[client] || !n.Counts
}

// quarantined returns for how many milliseconds nothing may be granted because of a data loss.
func (n *Name) quarantined() int64 {
	if n.Quarantine == 0 {
		return 0
	}
	before, _ := n.get(Marker)
	known, seen, life, since := "-", "", n.Quarantine, int64(0)
	if w := strings.Fields(before); len(w) == 4 {
		known, seen, since = w[0], w[2], number(w[3])
		life = max(life, number(w[1]))
	}
	wait := int64(0)
	if known != n.Incarnation {
		if seen != n.Incarnation || since > n.ms() {
			seen, since = n.Incarnation, n.ms()
		}
		if wait = since + life - n.ms(); wait <= 0 {
			known, wait = n.Incarnation, 0
		}
	}
	text := fmt.Sprintf("%s %d %s %d", known, life, seen, since)
	if text != before || 2*n.remains(Marker) < n.Retention {
		n.Put(Marker, text, max(n.Retention, 2*life))
	}
	return wait
}

// shut returns for how many milliseconds nothing may be granted, because of a data loss or a
// minimum hold.
func (n *Name) shut() int64 { return max(n.quarantined(), n.remains(closed), 0) }
