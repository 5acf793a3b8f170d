package sim

// fault injects one fault and schedules the next one.
func (w *World) fault() {
	w.after(w.rng.below(2*w.class.Every), event{kind: evFault})
	f := w.class.Faults[w.rng.below(int64(len(w.class.Faults)))]
	c, n := w.anyClient(), w.anyNode()
	if w.Trace != nil {
		w.say("fault %s: client %d, node %d", faultNames[f], c.id, n)
	}
	switch f {
	case cutLink, isolateClient, isolateNode:
		w.cutLinks(f, c.id, n)
	case killClient:
		c.kill()
	case pauseHolder, suspendHolder:
		now := w.now
		c.freeze()
		if f == suspendHolder {
			c.suspended += max(0, c.frozen-now)
		}
	case jumpClient:
		c.wall += w.rng.within(2 * term)
	case repoint:
		w.repoint(c)
	case jumpNode:
		w.servers[n].offset += w.rng.within(2 * term / 1000)
	default:
		w.hurt(f, n)
	}
}

// anyClient picks a client, in most cases a holder.
func (w *World) anyClient() *client {
	pick := w.rng.below(int64(len(w.clients)))
	if w.rng.chance(700) {
		for i := range w.clients {
			if j := (int(pick) + i) % len(w.clients); w.clients[j].state == holding {
				return &w.clients[j]
			}
		}
	}
	return &w.clients[pick]
}

// anyNode picks a node, in most cases one that has granted the lock.
func (w *World) anyNode() uint8 {
	pick := w.rng.below(int64(w.size))
	if w.rng.chance(700) {
		for i := range w.size {
			if j := (int(pick) + i) % w.size; len(w.servers[j].Seats) > 0 {
				return uint8(j)
			}
		}
	}
	return uint8(pick)
}

// cutLinks cuts links for a while, in one direction or both. Messages sent meanwhile are lost, or
// arrive at the end of the cut.
func (w *World) cutLinks(f fault, client, node uint8) {
	until := w.now + w.rng.below(term/2)
	if w.rng.chance(300) {
		until = w.now + w.rng.below(2*term)
	}
	ways, keeps := 1+w.rng.below(3), w.rng.chance(500)
	for c := range w.clients {
		for n := range w.servers {
			if f != isolateNode && c != int(client) || f != isolateClient && n != int(node) {
				continue
			}
			l := &w.net.links[c][n]
			l.keeps = keeps
			for way := range 2 {
				if ways>>way&1 == 1 {
					l.cut[way] = until
				}
			}
		}
	}
}

// repoint makes an address lead to another node's server, for one client or for all. Each other
// client may instead get its correct addresses back.
func (w *World) repoint(c *client) {
	from, to, alone := w.rng.below(int64(w.size)), w.rng.below(int64(w.size)), w.rng.chance(500)
	for i := range w.clients {
		d := &w.clients[i]
		switch {
		case w.rng.chance(300):
			for i := range d.leads {
				d.leads[i] = uint8(i)
			}
		case d == c || !alone:
			d.leads[from] = uint8(to)
		}
	}
}

// kill ends a client's process and starts another one after a pause.
func (c *client) kill() {
	w := c.world
	c.reset(w, c.id)
	w.after(w.rng.below(term/4), event{kind: evTry, client: c.id, round: c.turn})
}

// hurt injects a fault into a node.
func (w *World) hurt(f fault, n uint8) {
	s := &w.servers[n]
	down := w.rng.below(term / 8)
	switch f {
	case stopNode:
		s.stopped = w.now + w.rng.below(term)
		return
	case flushNode:
		s.flush()
		return
	case failOver:
		s.failOver()
		if w.rng.chance(200) {
			s.failOver()
		}
		return
	case stopAndKill:
		other := &w.servers[(int(n)+1)%w.size]
		other.stopped = w.now + w.rng.below(term/2)
		s.flush()
	case crashLose:
		s.flush()
	case crashStale:
		s.fallBack()
	case crashLocks:
		s.Seats = s.Seats[:0]
	}
	s.downTil = w.now + down
	s.restart(s.downTil)
}
