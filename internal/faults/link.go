package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// A link is one connection through a proxy: a client's, and the one to the
// server that belongs to it.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	server *net.TCPConn  // nil if the link was made during a partition
	done   chan struct{} // closed when the link is cut
	tail   []byte        // the end of what has passed to the server, for the rules

	// These are guarded by the proxy's mu.
	lost    Direction // where bytes, or the end, were lost
	ended   Direction // where the end has arrived
	swallow *rule     // the rule that makes this link lose its replies
	closed  bool
}

// A piece is what arrived at once, and when it is to go on. The last piece of a
// connection has the error that ended it: io.EOF, or what broke it.
type piece struct {
	data []byte
	due  time.Time
	end  error
}

// connect makes the link of a client that was accepted.
func (p *Proxy) connect(client *net.TCPConn) {
	l := &link{proxy: p, client: client, done: make(chan struct{})}
	if !p.admit(l) {
		return
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	server, err := d.DialContext(p.ctx, "tcp", p.target)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && l.closed {
		abort(server.(*net.TCPConn))
	}
	if l.closed {
		return
	}
	if err != nil {
		if l.lost |= p.drop; l.lost == 0 { // in a partition nobody hears of it
			l.cut()
		}
		return
	}
	l.server = server.(*net.TCPConn)
	l.pump(ToServer, l.client, l.server)
	l.pump(ToClient, l.server, l.client)
}

// admit notes a link, and reports whether it is to reach the server.
func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = struct{}{}
	if p.ctx.Err() != nil {
		l.cut()
		return false
	}
	l.lost = p.drop
	return l.lost == 0
}

// abort closes c with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// cut resets both sides. The caller holds the proxy's mu.
func (l *link) cut() {
	if l.closed {
		return
	}
	l.leave()
	abort(l.client)
	if l.server != nil {
		abort(l.server)
	}
}

// leave notes that the link is no more. The caller holds the proxy's mu.
func (l *link) leave() {
	l.closed = true
	delete(l.proxy.links, l)
	close(l.done)
	if l.swallow != nil {
		close(l.swallow.done)
	}
}

// finish passes on the end of one direction; with the second the link is over.
// A link whose reply was swallowed is cut instead: the server has answered and
// gone.
func (l *link) finish(way Direction, to *net.TCPConn, end error) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.ended |= way
	switch {
	case l.closed:
	case !errors.Is(end, io.EOF), way == ToClient && l.swallow != nil:
		l.cut()
	case l.ended != Both:
		_ = to.CloseWrite() // if it fails, the other direction finds out
	default:
		l.leave()
		_ = l.client.Close()
		_ = l.server.Close()
	}
}

// pump passes on what comes from one side to the other. Its two goroutines, a
// reader and a writer so that delayed pieces can queue up, end when their
// direction has ended or the link is cut.
func (l *link) pump(way Direction, from, to *net.TCPConn) {
	queue := make(chan piece, 1024)
	l.proxy.work.Go(func() {
		defer close(queue)
		buffer := make([]byte, 32<<10)
		for {
			next := l.read(way, from, buffer)
			select {
			case queue <- next:
			case <-l.done:
				return
			}
			if next.end != nil {
				return
			}
		}
	})
	l.proxy.work.Go(func() {
		for next := range queue {
			if !l.wait(next.due) || !l.deliver(way, to, next) {
				return
			}
		}
	})
}

func (l *link) read(way Direction, from *net.TCPConn, b []byte) piece {
	n, err := from.Read(b)
	l.proxy.mu.Lock()
	delay := l.proxy.delay[way.index()]
	l.proxy.mu.Unlock()
	return piece{data: bytes.Clone(b[:n]), due: time.Now().Add(delay), end: err}
}

// wait waits for a moment, and reports whether the link is still there then.
func (l *link) wait(due time.Time) bool {
	d := time.Until(due)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// deliver sends one piece on, or loses it. It reports whether more can follow.
func (l *link) deliver(way Direction, to *net.TCPConn, next piece) bool {
	if way == ToServer {
		l.callHooks(next.data)
	}
	lost, swallowed := l.judge(way, next.data)
	if lost {
		return true
	}
	if len(next.data) > 0 && (way == ToServer || !swallowed) {
		if _, err := to.Write(next.data); err != nil {
			l.finish(way, to, err)
			return false
		}
	}
	if swallowed && way == ToServer {
		// The server sees the requests end and no reset, which would make its
		// kernel throw away what it has not read yet.
		next.end = io.EOF
	}
	if next.end == nil {
		return true
	}
	l.finish(way, to, next.end)
	return false
}

// judge tells what becomes of a piece: lost in a partition, which is
// remembered, or on a link that loses its replies because a rule says so.
func (l *link) judge(way Direction, data []byte) (lost, swallowed bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lost |= p.drop & way
	if l.closed || l.lost&way != 0 {
		return true, false
	}
	if way == ToServer {
		l.swallow = p.takeSwallow(l.tail, data)
		l.tail = newTail(l.tail, data)
	}
	return false, l.swallow != nil
}
