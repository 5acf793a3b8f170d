package faults

import (
	"bytes"
	"net"
	"time"
)

// Twice delivers every request that contains text to the server a second time, after the delay by,
// like a client or a proxy that resends an unanswered request. The second delivery has a connection
// of its own and its reply is discarded, so it is suitable for protocols without sessions only:
// Redis, but not PostgreSQL. It continues until remove is called; pending deliveries still happen.
func (p *Proxy) Twice(text string, by time.Duration) (remove func()) {
	return p.add(&rule{text: []byte(text), act: func(_ *Link, _ piece, request []byte) bool {
		again := bytes.Clone(request)
		p.work.Go(func() { p.deliver(again, by) }) // ends with the reply, or with the proxy
		return true
	}})
}

// deliver sends a request to the server after a delay, and waits for the reply.
func (p *Proxy) deliver(request []byte, by time.Duration) {
	timer := time.NewTimer(by)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		return
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	server, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return // the server is down, and the request is lost
	}
	defer server.Close()
	_ = server.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := server.Write(request); err == nil {
		_, _ = server.Read(make([]byte, 1))
	}
}
