package faults

import "slices"

// Stall stops reading in the given directions on every connection, and on those made until Resume
// or Heal. Nothing is lost: what was sent meanwhile is delivered then, even for clients that have
// given up and closed their connection. Senders block when the kernel's buffers, some MB, are full.
func (p *Proxy) Stall(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled |= d
	for _, l := range p.links {
		l.stall(d)
	}
}

// Resume ends every Stall, also those of single connections.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = 0
	for _, l := range p.links {
		l.resume()
	}
}

// Links returns the connections, the oldest first.
func (p *Proxy) Links() []*Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

// Stall is Proxy.Stall for one connection. With ToServer, the client's writes block after a while;
// with ToClient, the server's.
func (l *Link) Stall(d Direction) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.stall(d)
}

// Resume ends Stall: what was sent meanwhile is delivered.
func (l *Link) Resume() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.resume()
}

// ResetClient resets only the client's side. What the proxy has read from the client is delivered,
// and the server sees the connection close as if the client had closed it properly.
func (l *Link) ResetClient() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.late = true
	abort(l.client)
}

// stall stalls the link. The caller holds the proxy's mu.
func (l *Link) stall(d Direction) {
	for _, way := range []Direction{ToServer, ToClient} {
		if d&way != 0 && l.stalled[way.index()] == nil {
			l.stalled[way.index()] = make(chan struct{})
		}
	}
}

// resume ends the stall of both directions. The caller holds the proxy's mu.
func (l *Link) resume() {
	for i, flow := range l.stalled {
		if flow != nil {
			close(flow)
			l.stalled[i] = nil
		}
	}
}

// awaitFlow waits until a direction is not stalled, and reports whether the link is still open
// then.
func (l *Link) awaitFlow(way Direction) bool {
	for {
		l.proxy.mu.Lock()
		flow := l.stalled[way.index()]
		l.proxy.mu.Unlock()
		if flow == nil {
			return true
		}
		select {
		case <-flow:
		case <-l.done:
			return false
		}
	}
}
