package faults

import (
	"sync"
	"time"
)

// Late delays every request that contains text, and everything behind it on its connection, on its
// way to the server. The request arrives even if its client gives up and closes or resets the
// connection. The server learns of that end with the same delay. Every request contains the empty
// text. It continues until remove is called; requests in flight stay delayed.
func (p *Proxy) Late(text string, by time.Duration) (remove func()) {
	return p.add(&rule{text: []byte(text), act: func(l *Link, next piece, _ []byte) bool {
		l.detain(nil, by)
		return l.wait(next.arrived.Add(by))
	}})
}

// Held is the requests kept by [Proxy.Hold] or [Proxy.HoldNext].
type Held struct {
	caught, deliver, end, answered chan struct{}
	once                           struct{ caught, deliver, end, answered sync.Once }
	remove                         func()

	mu    sync.Mutex // guards links
	links []*Link    // the connections with kept requests
}

// Hold keeps every request that contains text, and everything behind it on its connection, until
// Deliver. Then the requests reach the server, even if their clients have given up. Every request
// contains the empty text.
func (p *Proxy) Hold(text string) *Held { return p.hold(text, false) }

// HoldNext is Hold for the next such request only.
func (p *Proxy) HoldNext(text string) *Held { return p.hold(text, true) }

func (p *Proxy) hold(text string, next bool) *Held {
	h := &Held{}
	for _, c := range []*chan struct{}{&h.caught, &h.deliver, &h.end, &h.answered} {
		*c = make(chan struct{})
	}
	h.remove = p.add(&rule{text: []byte(text), once: next, act: h.keep})
	return h
}

// keep delays a request until Deliver.
func (h *Held) keep(l *Link, _ piece, _ []byte) bool {
	l.detain(h, 0)
	h.mu.Lock()
	h.links = append(h.links, l)
	h.mu.Unlock()
	h.once.caught.Do(func() { close(h.caught) })
	select {
	case <-h.deliver:
		l.proxy.mu.Lock()
		l.awaited = h
		l.proxy.mu.Unlock()
		return true
	case <-l.done:
		return false
	}
}

// Caught is closed when the first request is kept.
func (h *Held) Caught() <-chan struct{} { return h.caught }

// Deliver sends everything that was kept to the server, and keeps no more requests. If the clients
// are gone, the connections to the server stay open until End.
func (h *Held) Deliver() {
	h.remove()
	h.once.deliver.Do(func() { close(h.deliver) })
}

// Answered is closed when the server has answered on a connection on which Deliver has delivered,
// or has closed it.
func (h *Held) Answered() <-chan struct{} { return h.answered }

// ResetClients resets the clients' side of the connections with kept requests. The clients see the
// reset, but the server does not.
func (h *Held) ResetClients() {
	h.mu.Lock()
	links := h.links
	h.mu.Unlock()
	for _, l := range links {
		l.ResetClient()
	}
}

// End delivers what is still kept, and lets the server learn of the end of clients that are gone.
// It may be called at any time.
func (h *Held) End() {
	h.Deliver()
	h.once.end.Do(func() { close(h.end) })
}

// detain records that a link keeps a request. From then on the connection to the server stays open
// when the client's connection ends.
func (l *Link) detain(h *Held, by time.Duration) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.late = true
	l.endLate = max(l.endLate, by)
	if h != nil {
		l.endHeld = h
	}
}

// terminate is the message that PostgreSQL's clients send before they close a connection. The proxy
// treats it like the end of the connection.
var terminate = []byte("X\x00\x00\x00\x04")

// awaitEnd waits until the end of a client's connection may be forwarded to the server. If it
// returns true, forward a proper close, even after a reset: a reset could discard data that the
// server has not read yet.
func (l *Link) awaitEnd(next piece) (properly bool) {
	l.proxy.mu.Lock()
	late, by, held := l.late, l.endLate, l.endHeld
	l.proxy.mu.Unlock()
	if !late {
		return false
	}
	if held != nil {
		select {
		case <-held.end:
		case <-l.done:
		}
	}
	l.wait(next.arrived.Add(by))
	return true
}

// answers records that the server has answered or has closed the connection. The caller holds the
// proxy's mu.
func (l *Link) answers() {
	if h := l.awaited; h != nil {
		h.once.answered.Do(func() { close(h.answered) })
		l.awaited = nil
	}
}
