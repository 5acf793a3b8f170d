package twin

import (
	"fmt"
	"strings"
)

// notifyNextClients asks those to look after a while who may sleep for longer.
func (n *Name) notifyNextClients(after int64, except string) {
	f, text := &n.fence, fmt.Sprintf("advance %d lock:n", after)
	switch {
	case f.told == "*":
		list := n.Alive.sorted()
		for i := len(list) - 1; i >= 0 && i >= len(list)-batch && list[i].Score >= 0; i-- {
			if list[i].Text != except && !n.publish(list[i].Text, text) {
				n.Alive.remove(list[i].Text)
			}
		}
	case f.told != "-" && f.told != except:
		n.publish(f.told, text)
	}
	if after <= grantMax && f.told != "-" {
		f.told, n.dirty = "-", true
	}
}

// handOff lets a waiting request in and tells its client.
func (n *Name) handOff(owner, text string, d desc) bool {
	life := min(d.ttl, grantMax)
	token, floor := n.addHolder(owner, text, life)
	n.fence.grantee = d.client
	if n.publish(d.client, fmt.Sprintf("grant %s %d %d %d %d %s lock:n", owner, token, floor, n.Now, life, d.mode)) {
		return true
	}
	if d.mode == "x" {
		n.state = "free"
	} else {
		who, _ := n.seated(fmt.Sprint(token))
		n.removeHolder(fmt.Sprint(token), who)
	}
	n.fence.grantee = "-"
	n.barClient(d.client)
	return false
}

// quarantined returns for how many milliseconds more nothing may be granted.
func (n *Name) quarantined() int64 {
	if n.Quarantine == 0 {
		return 0
	}
	known, seen, life, since := "", "", n.Quarantine, int64(0)
	if w := strings.Fields(n.Marker.Value); len(w) == 4 {
		known, seen, since = w[0], w[2], number(w[3])
		life = max(life, number(w[1]))
	} else {
		seen, since = n.Incarnation, n.ms()
	}
	left := int64(0)
	if known != n.Incarnation {
		if seen != n.Incarnation || since > n.ms() {
			seen, since = n.Incarnation, n.ms()
		}
		if left = since + life - n.ms(); left <= 0 {
			known, left = n.Incarnation, 0
		}
	}
	if known == "" {
		known = "-"
	}
	text := fmt.Sprintf("%s %d %s %d", known, life, seen, since)
	if text != n.Marker.Value || 2*(n.Marker.Until-n.ms()) < n.Retention {
		n.Marker = Text{text, n.ms() + max(n.Retention, 2*life)}
	}
	return left
}

// advance lets in whoever is next, as many as fit.
func (n *Name) advance(orderly bool) {
	f := &n.fence
	if n.state == "x" || n.state == "foreign" || !f.lined {
		return
	}
	head, ok := n.Queue.first()
	if !ok {
		f.lined = false
		n.dirty = n.dirty || n.Fence.Until > 0
		return
	}
	if n.state == "free" && f.grantee != "-" {
		if !orderly {
			n.suspend(f.grantee, f.last)
		}
		f.grantee, n.dirty = "-", true
	}
	if left := max(n.quarantined(), ceilDiv(f.notBefore-n.Now, 1000)); left > 0 {
		first := ""
		if orderly {
			_, rest, _ := strings.Cut(head.Text, " ")
			first, _, _ = strings.Cut(rest, " ")
			n.publish(first, fmt.Sprintf("advance %d lock:n", left))
		}
		n.notifyNextClients(left, first)
		return
	}
	room, turns, life, to := batch, 16*batch, int64(0), ""
	for ok {
		if room == 0 || turns == 0 {
			f.told = "*"
			_, rest, _ := strings.Cut(head.Text, " ")
			client, _, _ := strings.Cut(rest, " ")
			n.publish(client, "advance 0 lock:n")
			n.notifyNextClients(0, "")
			return
		}
		turns--
		owner, text, _ := strings.Cut(head.Text, " ")
		d, read := readDesc(text)
		if !read || !n.lives(d.client, d.ttl, head.Score) {
			n.Queue.remove(head.Text)
		} else if n.state == "s" && (d.mode == "x" || n.agree(d.limit, n.limit) && !n.fits(d.limit, d.weight)) {
			break
		} else {
			n.Queue.remove(head.Text)
			if n.state == "s" && !n.agree(d.limit, n.limit) {
				n.publish(d.client, "refuse "+owner+" "+n.limit)
			} else if n.handOff(owner, text, d) {
				room, life, to = room-1, min(d.ttl, grantMax), d.client
				if d.mode == "x" {
					break
				}
			}
		}
		if head, ok = n.Queue.first(); !ok {
			f.lined, n.dirty = false, true
		}
	}
	if room < batch {
		n.notifyNextClients(life, to)
	}
}

// blockedInfo says when time alone may change something, what is in the way and who.
func (n *Name) blockedInfo(client string) (text string, left int64) {
	why, holder := "-", n.holder
	switch n.state {
	case "s":
		if m, ok := n.Shared.first(); ok {
			left = max(m.Score-n.ms(), 0)
		}
		m, _ := n.Meta.first()
		holder = "fencelock " + m.Text
	case "free":
		holder = ""
		left = n.quarantined()
		rest := ceilDiv(n.fence.notBefore-n.Now, 1000)
		if left > 0 {
			why = "q"
		} else if rest > 0 {
			why = "m"
		}
		left = max(left, rest, 0)
	default:
		if n.state == "foreign" {
			why = "f"
		}
		if n.state == "x" && n.fence.grantee != "-" && n.fence.granted <= n.Now {
			life := min(grantMax, readHolder(strings.TrimPrefix(n.holder, "fencelock ")).ttl)
			left = life - floorDiv(n.Now-n.fence.granted, 1000)
		}
		if left <= 0 {
			left = n.Lock.Until - n.ms()
		}
	}
	if client != "" && (left > grantMax || left < 0) && n.fence.told != "*" && n.fence.told != client {
		if n.dirty = true; n.fence.told == "-" {
			n.fence.told = client
		} else {
			n.fence.told = "*"
		}
	}
	return fmt.Sprintf("%d %s %s", left, why, holder), left
}
