package clients

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A faultyProxy passes requests on, and does to some of them what networks and servers do.
type faultyProxy struct {
	t       *testing.T
	backend string
	client  *http.Client
	late    sync.WaitGroup // requests whose clients are gone
	seen    [len(faultNames)]atomic.Int64
}

// The faults. More than half of the requests have none.
var faultNames = [...]string{
	"passed on", "reset before it arrived", "answer lost", "answer cut", "sent twice at once", "sent twice in turn", "stalled", "body cut", "arrived late", "503 in front",
}

func newProxy(t *testing.T, backend string) (*faultyProxy, string) {
	p := &faultyProxy{t: t, backend: backend, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.Close()
		p.late.Wait()
		p.client.CloseIdleConnections()
	})
	return p, server.URL
}

// ServeHTTP passes one request on.
func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fault := 0
	if rand.IntN(2) > 0 {
		fault = rand.IntN(len(faultNames))
	}
	p.seen[fault].Add(1)
	switch faultNames[fault] {
	case "reset before it arrived":
		reset(w)
	case "answer lost":
		p.send(r, body)
		reset(w)
	case "answer cut":
		answer(w, p.send(r, body), 2)
	case "sent twice at once":
		var first *got
		var both sync.WaitGroup
		both.Go(func() { first = p.send(r, body) })
		second := p.send(r, body)
		both.Wait()
		if first == nil || rand.IntN(2) == 0 {
			first = second
		}
		answer(w, first, 1)
	case "sent twice in turn":
		p.send(r, body)
		answer(w, p.send(r, body), 1)
	case "stalled":
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // some clients give up before
		answer(w, p.send(r, body), 1)
	case "body cut":
		p.sendHalf(r, body)
		reset(w)
	case "arrived late":
		p.late.Go(func() { // ends with the answer
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			p.send(r, body)
		})
		reset(w)
	case "503 in front":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		answer(w, p.send(r, body), 1)
	}
}

// got is an answer of the backend.
type got struct {
	status int
	header http.Header
	body   []byte
}

// send makes a request of the backend, whatever becomes of the client. It returns nil if the answer is cut.
func (p *faultyProxy) send(r *http.Request, body []byte) *got {
	out, err := http.NewRequest(r.Method, p.backend+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return nil
	}
	out.Header = r.Header.Clone()
	out.GetBody = nil // the proxy does not retry by itself
	res, err := p.client.Do(out)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	return &got{res.StatusCode, res.Header, data}
}

// sendHalf breaks off in the middle of the body.
func (p *faultyProxy) sendHalf(r *http.Request, body []byte) {
	out, err := http.NewRequest(r.Method, p.backend+r.URL.RequestURI(), io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{}))
	if err != nil {
		p.t.Error(err)
		return
	}
	out.Header, out.ContentLength = r.Header.Clone(), int64(len(body))
	if res, err := p.client.Do(out); err == nil {
		_ = res.Body.Close()
	}
}

// broken is the rest of a body that does not come.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// answer sends one of n parts of an answer, and resets the connection if there are more, or none.
func answer(w http.ResponseWriter, g *got, n int) {
	if g == nil {
		reset(w)
		return
	}
	for name, values := range g.header {
		w.Header()[name] = values
	}
	w.WriteHeader(g.status)
	_, _ = w.Write(g.body[:len(g.body)/n]) // the client may be gone
	if n > 1 {
		panic(http.ErrAbortHandler)
	}
}

// reset closes the connection without an answer.
func reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
