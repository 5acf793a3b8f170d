package faults

import (
	"bytes"
	"slices"
)

// A rule applies to requests that contain a text.
type rule struct {
	text []byte
	once bool // it applies to the next such request only

	// act runs before the request is forwarded, and reports whether the link is still open.
	act func(l *Link, next piece, request []byte) bool
}

// OnRequest calls hook whenever a request that contains text is about to reach the server. The
// request, and everything behind it on its connection, waits until hook returns. A hook that calls
// Drop or Reset keeps the request from the server. Text encrypted by TLS is not found. Several
// goroutines may call the hook concurrently. It continues until remove is called.
func (p *Proxy) OnRequest(text string, hook func()) (remove func()) {
	return p.add(&rule{text: []byte(text), act: func(*Link, piece, []byte) bool {
		hook()
		return true
	}})
}

// SwallowReply lets the next request that contains text reach the server, but discards its reply.
// From then on nothing comes back on that connection, including earlier replies that are due. The
// connection is reset as soon as the server has answered everything it was sent; then cut is
// closed. It happens once.
func (p *Proxy) SwallowReply(text string) (cut <-chan struct{}) {
	done := make(chan struct{})
	r := &rule{text: []byte(text), once: true}
	r.act = func(l *Link, _ piece, _ []byte) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.closed || (p.drop|l.lost)&ToServer != 0 { // the request is lost: it was not this one
			p.rules = append(p.rules, r)
		} else {
			l.swallowed = append(l.swallowed, done)
		}
		return !l.closed
	}
	p.add(r)
	return done
}

func (p *Proxy) add(r *rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

// actions returns the actions of all rules that match a request, or nothing if the request is to be
// lost. It removes rules for one request.
func (l *Link) actions(request []byte) (acts []func(*Link, piece, []byte) bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if (p.drop|l.lost)&ToServer != 0 {
		return nil
	}
	p.rules = slices.DeleteFunc(p.rules, func(r *rule) bool {
		if !bytes.Contains(request, r.text) {
			return false
		}
		acts = append(acts, r.act)
		return r.once
	})
	return acts
}
