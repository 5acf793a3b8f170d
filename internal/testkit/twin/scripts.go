package twin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Request is a request as passed to the scripts.
type Request struct {
	Owner, Desc string
	Sent        string // the client's own time
	Until       int64  // the latest time at which it may be served, in microseconds
}

// call prepares the state for a script.
func (n *Name) call() {
	n.Said = nil
	n.Sweep()
}

// Acquire is the acquire script. common allows it to take a free name without further checks.
func (n *Name) Acquire(q Request, wait, place, common bool) string {
	n.call()
	late := fmt.Sprintf("late %d", n.Now)
	if q.Until < n.Now {
		return late
	}
	r, _ := read(q.Owner + " " + q.Desc)
	if common && n.untouched(q.Owner) {
		token, _ := n.addHolder(r, r.ttl)
		return fmt.Sprintf("taken %d %d", n.Now, token)
	}
	n.loadLock()
	mine := n.tokenOf(r.owner, r.entry)
	behind := n.mode == "foreign" || n.mode == "x" && mine == 0
	switch {
	case behind && !wait:
		return n.held()
	case n.there(left + r.owner):
		return fmt.Sprintf("ended %d", n.Now)
	case behind:
		return n.join(r, q.Sent, place)
	}
	n.begin()
	n.serve()
	if answer := n.enter(r, wait); answer != "" {
		return answer
	}
	if wait {
		return n.join(r, q.Sent, place)
	}
	return n.held()
}

// untouched reports whether a name can be acquired without further checks.
func (n *Name) untouched(owner string) bool {
	n.mode = "free"
	return !n.there(Lock) && !n.there(Queue) && !n.there(closed) && !n.there(left+owner)
}

// enter grants or refuses a request. It returns "" if the request has to wait.
func (n *Name) enter(r request, wait bool) string {
	token := n.tokenOf(r.owner, r.entry)
	floor := int64(0)
	switch {
	case token > 0:
		n.extend(r.owner, token, r.ttl)
		floor = n.floor(token)
	case n.mode == "s" && r.mode == "s" && !n.agrees(r):
		return fmt.Sprintf("limit %d %s", n.Now, n.limit)
	case !n.fits(r) || n.lined:
		return ""
	default:
		if left := n.quarantined(); left > 0 && !wait {
			return fmt.Sprintf("quarantine %d %d", n.Now, left)
		}
		if n.shut() > 0 {
			return ""
		}
		token, floor = n.addHolder(r, r.ttl)
	}
	if r.minHold > 0 {
		n.close(r.owner, r.minHold)
	}
	return fmt.Sprintf("granted %d %d %d", n.Now, token, floor)
}

// blocked returns the time after which the name may be free without a call, the reason why it is
// not free, and the holder.
func (n *Name) blocked() (wait int64, why, text string) {
	switch n.mode {
	case "s":
		first, ends := n.members(Lock, tokens, forever)[0], n.members(Lock, times, tokens)
		owner, desc, _ := strings.Cut(first.text, " ")
		wait = max(ends[0].score-n.ms(), 0)
		if closed := n.shut(); closed > 0 {
			wait = min(wait, closed)
		}
		return wait, "-", fmt.Sprintf("%s%s %d %s", format, owner, first.score, desc)
	case "free":
		why = "-"
		if wait = n.shut(); wait > 0 {
			if why = "m"; n.quarantined() > 0 {
				why = "q"
			}
		}
		return wait, why, ""
	case "foreign":
		return n.remains(Lock), "f", n.text
	}
	return n.remains(Lock), "-", n.text
}

func (n *Name) held() string {
	wait, why, text := n.blocked()
	return fmt.Sprintf("held %d %d %s %s", n.Now, wait, why, text)
}

// waitReply returns the part of the reply that a waiting request receives.
func (n *Name) waitReply() (text string, foreign bool) {
	wait, why, who := n.blocked()
	return fmt.Sprintf("%d %s %s", wait, why, who), why == "f"
}

// Alive returns the key that says that a client is alive.
func (n *Name) Alive(client string) string {
	if n.Counts {
		return alive + client
	}
	return alive + "{lock:n}:" + client
}

// speaks records that a client is alive.
func (n *Name) speaks(client, sent string) {
	n.end(Queue, n.ms()+queued)
	n.Put(n.Alive(client), sent, grantMax)
}

// join puts a request into the queue.
func (n *Name) join(r request, sent string, place bool) string {
	if n.rank(r.entry) == 0 {
		ticket := n.Now
		if list := n.waiting(); len(list) > 0 {
			ticket = max(ticket, list[len(list)-1].score+1)
		}
		n.add(Queue, r.entry, ticket)
	}
	n.speaks(r.client, cmp.Or(sent, "0"))
	ticket := n.score(Queue, r.entry)
	position := n.rank(r.entry)
	text, foreign := n.waitReply()
	if !place && !foreign {
		position = 0
	}
	return fmt.Sprintf("queued %d %d %d %s", n.Now, ticket, position, text)
}

// handOff grants the lock to a waiting request and notifies its client.
func (n *Name) handOff(r request) (heard bool) {
	token, floor := n.addHolder(r, min(r.ttl, grantMax))
	sent, _ := n.get(n.Alive(r.client))
	if n.publish(r.client, fmt.Sprintf("grant %s %d %d %s %s", r.owner, token, floor, sent, Lock)) {
		return true
	}
	n.release(r.owner, token)
	n.Delete(n.Alive(r.client))
	return false
}

// lives reports whether a client counts as alive.
func (n *Name) lives(client string) bool {
	left := n.remains(n.Alive(client))
	if left > grantMax {
		n.end(n.Alive(client), n.ms()+grantMax)
	}
	return left > 0
}

// serve grants the lock to the next waiters, as many as fit.
func (n *Name) serve() {
	for given := 0; ; {
		n.lined = false
		if n.mode != "free" && n.mode != "s" {
			return
		}
		list := n.waiting()
		if n.lined = len(list) > 0; !n.lined {
			return
		}
		r, ok := read(list[0].text)
		if ok && n.lives(r.client) {
			if given == 0 && n.shut() > 0 {
				return
			}
			if given == batch {
				n.publish(r.client, "advance "+Lock)
				return
			}
			if n.mode == "s" && r.mode == "s" && !n.agrees(r) {
				n.publish(r.client, "refuse "+r.owner+" "+n.limit)
			} else if !n.fits(r) {
				return
			} else if n.handOff(r) {
				given++
			}
		}
		n.remove(Queue, list[0].text)
	}
}

// Release is the release script. late is the time until which an attempt of the request may arrive
// and must not be served, 0 if none.
func (n *Name) Release(owner string, token int64, id string, late int64) string {
	n.call()
	n.loadLock()
	if n.mode != "x" {
		n.begin()
	}
	had := n.release(owner, token)
	was, _ := n.get(left + owner)
	again := !had && was == id
	if !had && !again {
		id = ""
	}
	if had || late > 0 {
		n.mark(owner, id, late)
	}
	if n.there(Queue) {
		n.serve()
	}
	if had || again {
		return "ok "
	}
	return "gone "
}

// Leave is the leave script.
func (n *Name) Leave(q Request, late int64) string {
	n.call()
	n.begin()
	done, entry := "gone", q.Owner+" "+q.Desc
	if n.remove(Queue, entry) {
		done = "left"
	}
	if token := n.tokenOf(q.Owner, entry); token > 0 && n.release(q.Owner, token) {
		done = "released"
	}
	if by, _ := n.get(closed); by == q.Owner {
		n.Delete(closed)
	}
	n.mark(q.Owner, "", late)
	n.serve()
	return done + " "
}

// Entry is a request and its place in the queue.
type Entry struct {
	Request
	Ticket int64
}

// Touch is the touch script.
func (n *Name) Touch(client, sent string, until int64, oldest Entry, back []Entry) string {
	n.call()
	n.begin()
	if until < n.Now {
		return fmt.Sprintf("late %d", n.Now)
	}
	n.speaks(client, sent)
	for i, e := range append([]Entry{oldest}, back...) {
		entry := e.Owner + " " + e.Desc
		if token := n.tokenOf(e.Owner, entry); token > 0 {
			return fmt.Sprintf("mine %d %s %d", n.Now, e.Owner, token)
		}
		if i > 0 && n.rank(entry) == 0 && !n.there(left+e.Owner) {
			n.add(Queue, entry, e.Ticket)
		}
	}
	if len(back) > 0 {
		n.end(Queue, n.ms()+queued)
	}
	known := min(n.rank(oldest.Owner+" "+oldest.Desc), 1)
	n.serve()
	place := n.rank(oldest.Owner + " " + oldest.Desc)
	text, _ := n.waitReply()
	return fmt.Sprintf("%d %d %d %s", n.Now, known, place, text)
}

// TouchAll is the touchall script, for one name.
func (n *Name) TouchAll(client, sent string, until int64, oldest Request) string {
	n.call()
	n.loadLock()
	if until < n.Now {
		return fmt.Sprintf("late %d", n.Now)
	}
	n.Put(n.Alive(client), sent, grantMax)
	entry := oldest.Owner + " " + oldest.Desc
	if !n.there(Lock) || n.Keys[Lock].Set != nil || n.tokenOf(oldest.Owner, entry) > 0 || n.rank(entry) == 0 {
		return fmt.Sprintf("%d s", n.Now)
	}
	return fmt.Sprintf("%d %d", n.Now, n.remains(Lock))
}

// Confirm is the confirm script. asked says whether it is asked for what was left.
func (n *Name) Confirm(owner string, token, ttl, minHold int64, asked bool) string {
	n.call()
	n.begin()
	left := n.left(asked)
	if !n.extend(owner, token, ttl) {
		return "gone"
	}
	if minHold > 0 {
		n.close(owner, minHold)
	}
	return fmt.Sprintf("ok %d%s", n.floor(token), left)
}

// Renew is the renew script. asked says whether it is asked for what was left.
func (n *Name) Renew(owner string, token, ttl int64, asked bool) string {
	n.call()
	n.loadLock()
	left := n.left(asked)
	if n.mode != "x" || !n.extend(owner, token, ttl) {
		return "gone"
	}
	return "ok" + left
}

// left is the end of the answer of a renewal that is asked for what was left.
func (n *Name) left(asked bool) string {
	if !asked {
		return ""
	}
	return fmt.Sprintf(" %d", n.remains(Lock))
}

// Resize is the resize script. Version 0 queries the version.
func (n *Name) Resize(limit string, version int64) string {
	n.call()
	n.begin()
	text, _ := n.get(resized)
	_, last, _ := strings.Cut(text, " ")
	if version == 0 {
		return fmt.Sprintf("version %d", max(number(last)+1, n.Now))
	}
	if version > number(last) {
		n.Put(resized, fmt.Sprintf("%s %d", limit, version), n.Retention)
		n.serve()
	}
	return "ok "
}

// Break is the break script. only is the owner whose acquisition ends, "" for all.
func (n *Name) Break(reason, only string) string {
	n.call()
	n.begin()
	broken := false
	for _, h := range n.Holders() {
		if only == "" || only == h.Owner {
			broken = n.release(h.Owner, h.Token) || broken
			n.mark(h.Owner, "", 0)
			n.publish(h.client, fmt.Sprintf("lost %s %d %s", h.Owner, h.Token, reason))
		}
	}
	switch {
	case only == "":
		broken = n.Delete(Lock) || broken
		broken = n.Delete(closed) || broken
		n.mode = "free"
	case broken:
		n.Delete(closed)
	}
	if !broken {
		return "gone"
	}
	token := n.issue()
	n.serve()
	return fmt.Sprintf("broken %d ", token)
}

// Adopt is the adopt script. h is the acquisition.
func (n *Name) Adopt(q Request, h Holder) string {
	n.call()
	n.begin()
	if q.Until < n.Now {
		return fmt.Sprintf("late %d", n.Now)
	}
	if n.there(left + q.Owner) {
		return fmt.Sprintf("ended %d", n.Now)
	}
	r, _ := read(q.Owner + " " + q.Desc)
	token, floor := n.tokenOf(r.owner, r.entry), int64(0)
	if token > 0 {
		n.extend(r.owner, token, r.ttl)
		floor = n.floor(token)
	} else {
		i := slices.IndexFunc(n.Holders(), func(o Holder) bool { return o.Owner == h.Owner && o.Token == h.Token })
		if i < 0 || n.mode != r.mode {
			return fmt.Sprintf("gone %d", n.Now)
		}
		old, _ := read(n.Holders()[i].Owner + " " + n.Holders()[i].Desc)
		if n.mode == "s" && (old.limit != r.limit || old.weight != r.weight) {
			return fmt.Sprintf("unlike %d %s %d", n.Now, old.limit, old.weight)
		}
		if left := n.quarantined(); left > 0 {
			return fmt.Sprintf("quarantine %d %d", n.Now, left)
		}
		n.release(h.Owner, h.Token)
		n.mark(h.Owner, "", 0)
		token, floor = n.addHolder(r, r.ttl)
	}
	return fmt.Sprintf("granted %d %d %d", n.Now, token, floor)
}

// Take is an acquire in a batch.
func (n *Name) Take(q Request, id string) string {
	return n.together(id, func() string {
		if n.Now > q.Until || !n.untouched(q.Owner) || n.issue() > n.Now {
			return "s"
		}
		r, _ := read(q.Owner + " " + q.Desc)
		n.Delete(Fence) // addHolder must issue this token
		n.addHolder(r, r.ttl)
		return "t"
	})
}

// Free is a release in a batch.
func (n *Name) Free(owner string, token int64, id string) string {
	return n.together(id, func() string {
		n.loadLock()
		if n.mode == "x" && !n.there(Queue) && n.release(owner, token) {
			n.mark(owner, id, 0)
			return "o"
		}
		return "s"
	})
}

// together is a batch of one call. A repeated call returns the stored answer of the first one.
func (n *Name) together(id string, do func() (letter string)) string {
	n.call()
	answer, again := n.get(batched + id)
	if !again {
		answer = fmt.Sprintf("%d %s", n.Now, do())
		n.Put(batched+id, answer, grantMax)
	}
	return answer
}

// Holder is a holder of the name.
type Holder struct {
	Owner  string
	Token  int64
	Shared bool
	Desc   string
	client string
}

// Holders returns all holders, according to the lock key.
func (n *Name) Holders() (list []Holder) {
	k := n.Keys[Lock]
	if k == nil {
		return nil
	}
	if rest, ours := strings.CutPrefix(k.Text, format); ours {
		if w := strings.SplitN(rest, " ", 4); len(w) == 4 {
			list = append(list, Holder{w[0], number(w[1]), false, w[2] + " " + w[3], w[2]})
		}
	}
	for _, m := range n.members(Lock, tokens, forever) {
		r, _ := read(m.text)
		list = append(list, Holder{r.owner, m.score, true, r.desc, r.client})
	}
	return slices.Clip(list)
}
