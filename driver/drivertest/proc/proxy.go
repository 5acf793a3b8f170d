package proc

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// A Proxy stands between the clients of one server and that server. Between Cut and Mend
// nothing passes and no connection ends, as in a silent partition of the network; what was
// sent meanwhile arrives afterwards, however long its sender has given it up. Embedded in a
// drivertest.World it makes that a drivertest.Cutter. All methods are safe for concurrent use.
type Proxy struct {
	target string
	ln     net.Listener
	ctx    context.Context // ends with the test
	work   sync.WaitGroup  // every goroutine of the proxy

	mu   sync.Mutex    // guards open
	open chan struct{} // closed while bytes pass
}

// NewProxy starts a proxy on a free port of 127.0.0.1 for the TCP server at target,
// "host:port", which need not run yet. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := listen()
	if err != nil {
		t.Fatalf("no free port for a proxy: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{target: target, ln: ln, ctx: ctx, open: make(chan struct{})}
	close(p.open)
	p.work.Go(p.accept) // ends when ln is closed
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		p.work.Wait()
	})
	return p
}

// listen takes a port below those that systems give to outgoing connections, so that
// nobody who dials it before it is there is connected to himself.
func listen() (ln net.Listener, err error) {
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(22000))
		if ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return ln, nil
		}
	}
	return nil, err
}

// Addr returns the address that clients connect to, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut makes the server silent for all clients, also for those who connect now.
func (p *Proxy) Cut(testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default: // it is cut already
	}
}

// Mend ends a Cut. Everything that was sent meanwhile is delivered.
func (p *Proxy) Mend(testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.connect(client) }) // ends with the connection
	}
}

// connect passes a connection on in both directions, until either side ends it. Only the
// end of the test ends one that is cut.
func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	if !p.passes() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	stop := context.AfterFunc(p.ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	p.work.Go(func() { p.pass(client, server) }) // ends when the other direction does
	p.pass(server, client)
}

// pass copies one direction, and closes both ends when it is over.
func (p *Proxy) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, ended := from.Read(buf)
		if !p.passes() {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil || ended != nil {
			return
		}
	}
}

// passes waits while the proxy is cut, and reports whether the test goes on.
func (p *Proxy) passes() bool {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return p.ctx.Err() == nil
	case <-p.ctx.Done():
		return false
	}
}
