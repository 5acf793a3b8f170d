package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// A Link is one connection through a proxy: the client's connection and the one to the server. It
// is safe for concurrent use.
type Link struct {
	proxy  *Proxy
	client *net.TCPConn
	server *net.TCPConn  // nil if the link was made during a partition
	done   chan struct{} // closed when the link is cut

	// These are guarded by the proxy's mu.
	lost      Direction        // directions in which bytes or the end were lost
	ended     Direction        // directions in which the end was forwarded
	stalled   [2]chan struct{} // not nil while the direction is stalled; closed at the end of the stall
	swallowed []chan struct{}  // not empty if the replies are lost; closed when the link is cut
	late      bool             // a request was kept: the link stays open without its client
	endLate   time.Duration    // the delay of the client's end
	endHeld   *Held            // the Held that keeps the client's end, or nil
	awaited   *Held            // is notified of the next answer
	closed    bool
}

// A piece is the data of one read, and the time at which to forward it. The last piece of a
// direction has the error that ended it, such as io.EOF.
type piece struct {
	requests     [][]byte // toward the client: the bytes as they arrived
	arrived, due time.Time
	end          error
}

// connect makes the link for an accepted client.
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
		if l.lost |= p.drop; l.lost == 0 { // in a partition the client gets no reset
			l.cut()
		}
		return
	}
	l.server = server.(*net.TCPConn)
	l.pump(ToServer, l.client)
	l.pump(ToClient, l.server)
}

// admit adds a link, and reports whether to connect it to the server.
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

// leave removes a link that has ended. The caller holds the proxy's mu.
func (l *Link) leave() {
	l.closed = true
	l.proxy.links = slices.DeleteFunc(l.proxy.links, func(other *Link) bool { return other == l })
	close(l.done)
	l.answers()
	for _, done := range l.swallowed {
		close(done)
	}
}

// finish forwards the end of one direction. With the second one the link has ended. A link whose
// reply was swallowed is cut instead when the server ends it.
func (l *Link) finish(way Direction, to *net.TCPConn, end error) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.ended |= way
	switch {
	case l.closed:
	case !errors.Is(end, io.EOF), way == ToClient && len(l.swallowed) > 0:
		l.cut()
	case l.ended != Both:
		_ = to.CloseWrite() // if it fails, the other direction gets an error too
	default:
		l.leave()
		_ = l.client.Close()
		_ = l.server.Close()
	}
}

// pump forwards data from one side to the other. It starts a reader and a writer, so that delayed
// pieces can queue up between them. Both end when the direction has ended or the link is cut.
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

// A reader reads the data of one direction.
type reader struct {
	link   *Link
	way    Direction
	from   *net.TCPConn
	buffer []byte
	framer framer    // toward the server
	line   time.Time // when it has delivered what it read, if its rate is limited
}

// read returns the next piece, and reports whether the link is still open.
func (r *reader) read() (next piece, ok bool) {
	l := r.link
	if !l.awaitFlow(r.way) {
		return next, false
	}
	n, err := r.from.Read(r.buffer)
	if !l.awaitFlow(r.way) {
		return next, false
	}
	next = piece{arrived: time.Now(), end: err}
	l.proxy.mu.Lock()
	next.due = l.proxy.paces[r.way.index()].due(next.arrived, n, &r.line)
	l.proxy.mu.Unlock()
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

// wait waits until due, and reports whether the link is still open then.
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

// toServer applies the rules to the requests of a piece, and forwards or loses each of them. It
// reports whether more data can follow.
func (l *Link) toServer(next piece) bool {
	var ready []byte // requests to forward together
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
		// Close properly: after a reset, the server's kernel would discard data that the server has
		// not read yet.
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

// send sends requests to the server, and reports whether more can follow.
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

// toClient forwards or loses the server's replies. It reports whether more data can follow. An
// error of a write to the client does not end the direction: the other direction handles the
// client's end.
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

// judge decides about a request, a reply, or an end, which has no data. It is lost in a partition,
// and so is everything after it in its direction. It is swallowed if a rule swallows the replies of
// this link.
func (l *Link) judge(way Direction, data []byte) (lost, swallowed bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lost |= p.drop & way
	if l.closed || l.lost&way != 0 {
		return true, false
	}
	if len(data) > 0 && way == ToClient {
		l.answers()
	}
	return false, len(l.swallowed) > 0
}
