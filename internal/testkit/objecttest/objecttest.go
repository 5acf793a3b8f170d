// Package objecttest is a reference object server for tests: GET and conditional PUT as in RFC
// 9110. It does not represent the server of any vendor.
package objecttest

import (
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server keeps objects in memory. The ETag of an object is a hash of its contents, so old contents
// have their old ETag again. It is safe for concurrent use.
type Server struct {
	URL string // prefix of the objects' URLs

	// Lax makes it ignore the conditions of a PUT. Set it before use.
	Lax bool

	mu      sync.Mutex // guards objects, hold
	objects map[string][]byte
	hold    *Held
}

// Start starts a server, which is closed at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/"
	return s
}

// Held is a PUT that is delayed on its way.
type Held struct {
	caught, deliver, done chan struct{}
}

// HoldNext delays the next PUT until Deliver, even if its client has gone.
func (s *Server) HoldNext() *Held {
	h := &Held{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = h
	return h
}

// Caught is closed when the PUT has been received.
func (h *Held) Caught() <-chan struct{} { return h.caught }

// Deliver passes the PUT to the server, and returns when it has been answered.
func (h *Held) Deliver() {
	close(h.deliver)
	<-h.done
}

// ServeHTTP serves GET and PUT.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		body, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", etag(body))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(body)))
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		s.mu.Lock()
		held := s.hold
		s.hold = nil
		s.mu.Unlock()
		if held != nil {
			close(held.caught)
			<-held.deliver
			defer close(held.done)
		}
		w.WriteHeader(s.put(key, body, r.Header))
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// put writes an object if the conditions of a request hold.
func (s *Server) put(key string, body []byte, header http.Header) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[key]
	match := header.Get("If-Match")
	if !s.Lax && (match != "" && (!ok || match != etag(old)) || header.Get("If-None-Match") == "*" && ok) {
		return http.StatusPreconditionFailed
	}
	s.objects[key] = body
	return http.StatusOK
}

func etag(body []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(body)) }
