package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// A Link is one connection through a proxy: that of a client and the one to the server. It is safe
// for concurrent use.
type Link struct {
	proxy  *Proxy
	client *net.TCPConn
	server *net.TCPConn  // nil if the link was made during a partition
	done   chan struct{} // closed when the link is cut

	// These are guarded by the proxy's mu.
	lost    Direction        // where bytes, or the end, were lost
	ended   Direction        // where the end has arrived
	stalled [2]chan struct{} // not nil while nobody reads; closed by the end of that
	swallow *rule            // the rule that makes this link lose its replies
	late    bool             // a request was kept: the link outlives its client
	endLate time.Duration    // how late the server hears of the client's end
	endHeld *Held            // what keeps the client's end, nil if nothing does
	awaited *Held            // wants to hear of the next answer
	closed  bool
}

// A piece is what arrived at once, and when it is to go on. The last piece of a
// connection has the error that ended it: io.EOF, or what broke it.
type piece struct {
	requests     [][]byte // or, on the way to the client, whatever came
	arrived, due time.Time
	end          error
}

// connect makes the link of a client that was accepted.
func (p *Proxy) connect(client *net.TCPConn) {
	l := &Link{proxy: p, client: client, done: make(chan struct{})}
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
	l.pump(ToServer, l.client)
	l.pump(ToClient, l.server)
}

// admit notes a link, and reports whether it is to reach the server.
func (p *Proxy) admit(l *Link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, l)
	if p.ctx.Err() != nil {
		l.cut()
		return false
	}
	l.stall(p.stalled)
	l.lost = p.drop
	return l.lost == 0
}

// abort closes c with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// cut resets both sides. The caller holds the proxy's mu.
func (l *Link) cut() {
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
func (l *Link) leave() {
	l.closed = true
	l.proxy.links = slices.DeleteFunc(l.proxy.links, func(other *Link) bool { return other == l })
	close(l.done)
	l.answers()
	if l.swallow != nil {
		close(l.swallow.done)
	}
}

// finish passes on the end of one direction; with the second the link is over.
// A link whose reply was swallowed is cut instead: the server has answered and
// gone.
func (l *Link) finish(way Direction, to *net.TCPConn, end error) {
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
func (l *Link) pump(way Direction, from *net.TCPConn) {
	queue := make(chan piece, 1024)
	l.proxy.work.Go(func() {
		defer close(queue)
		r := reader{link: l, way: way, from: from, buffer: make([]byte, 32<<10)}
		for {
			next, ok := r.read()
			if !ok {
				return
			}
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
	deliver := l.toServer
	if way == ToClient {
		deliver = l.toClient
	}
	l.proxy.work.Go(func() {
		for next := range queue {
			if !l.wait(next.due) || !deliver(next) {
				return
			}
		}
	})
}

// A reader takes what comes from one side.
type reader struct {
	link   *Link
	way    Direction
	from   *net.TCPConn
	buffer []byte
	framer framer // on the way to the server
}

// read returns what comes next. It reports whether the link is still there.
func (r *reader) read() (next piece, ok bool) {
	l := r.link
	if !l.awaitFlow(r.way) {
		return next, false
	}
	n, err := r.from.Read(r.buffer)
	if !l.awaitFlow(r.way) {
		return next, false
	}
	l.proxy.mu.Lock()
	delay := l.proxy.delay[r.way.index()]
	l.proxy.mu.Unlock()
	next = piece{arrived: time.Now(), end: err}
	next.due = next.arrived.Add(delay)
	switch {
	case r.way == ToServer:
		next.requests = r.framer.cut(r.buffer[:n])
		if err != nil && len(r.framer.rest) > 0 {
			next.requests = append(next.requests, r.framer.rest)
		}
	case n > 0:
		next.requests = [][]byte{bytes.Clone(r.buffer[:n])}
	}
	return next, true
}

// wait waits for a moment, and reports whether the link is still there then.
func (l *Link) wait(due time.Time) bool {
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

// toServer sends the requests of a piece on, as the rules say, or loses them. It
// reports whether more can follow.
func (l *Link) toServer(next piece) bool {
	var ready []byte // what goes on at once
	lost, swallowed := false, false
	for _, request := range next.requests {
		if acts := l.actions(request); len(acts) > 0 {
			if !l.send(ready) {
				return false
			}
			ready = nil
			for _, act := range acts {
				if !act(l, next, request) {
					return false
				}
			}
		}
		if bytes.Equal(request, terminate) {
			if !l.send(ready) {
				return false
			}
			ready = nil
			l.awaitEnd(next)
		}
		if lost, swallowed = l.judge(ToServer, request); !lost {
			ready = append(ready, request...)
		}
	}
	if !l.send(ready) {
		return false
	}
	switch {
	case swallowed:
		// The server sees the requests end and no reset, which would make its
		// kernel throw away what it has not read yet.
		next.end = io.EOF
	case next.end == nil:
		return true
	default:
		if l.awaitEnd(next) {
			next.end = io.EOF
		}
		if lost, _ = l.judge(ToServer, nil); lost {
			return true
		}
	}
	l.finish(ToServer, l.server, next.end)
	return false
}

// send gives requests to the server, and reports whether more can follow.
func (l *Link) send(requests []byte) bool {
	if len(requests) == 0 {
		return true
	}
	_, err := l.server.Write(requests)
	if err != nil {
		l.finish(ToServer, l.server, err)
	}
	return err == nil
}

// toClient sends what the server answers on, or loses it. It reports whether
// more can follow. That the client is gone does not end it: the other direction
// says what becomes of what was sent.
func (l *Link) toClient(next piece) bool {
	for _, reply := range next.requests {
		if lost, swallowed := l.judge(ToClient, reply); !lost && !swallowed {
			_, _ = l.client.Write(reply)
		}
	}
	if next.end == nil {
		return true
	}
	if lost, _ := l.judge(ToClient, nil); lost {
		return true
	}
	l.finish(ToClient, l.client, next.end)
	return false
}

// judge tells what becomes of a request, a reply, or an end, which has no data:
// lost in a partition, which is remembered, or on a link that loses its replies
// because a rule says so.
func (l *Link) judge(way Direction, data []byte) (lost, swallowed bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lost |= p.drop & way
	if l.closed || l.lost&way != 0 {
		return true, false
	}
	if len(data) > 0 && way == ToServer && l.swallow == nil {
		l.swallow = p.takeSwallow(data)
	}
	if len(data) > 0 && way == ToClient {
		l.answers()
	}
	return false, l.swallow != nil
}
