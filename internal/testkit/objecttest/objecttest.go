// Package objecttest is a reference object server for tests: GET, DELETE and conditional PUT as in
// RFC 9110, and lists of objects as in S3. It does not represent the server of any vendor.
package objecttest

import (
	"cmp"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
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

	// Torn makes it check the conditions of a PUT some time before it writes. Set it before use.
	Torn bool

	// Page is how many objects a list contains at most. 0 means 1000. Set it before use.
	Page int

	mu      sync.Mutex // guards all below
	objects map[string]object
	hold    *Held
	answer  func(w http.ResponseWriter, r *http.Request, serve func()) bool
	ahead   time.Duration
}

// object is an object and when it was written.
type object struct {
	body []byte
	at   time.Time
}

// Intercept calls f for each request from now on. serve lets the server execute the request and
// discards its answer. If f returns false, the server then executes the request and answers it.
// A nil f ends this.
func (s *Server) Intercept(f func(w http.ResponseWriter, r *http.Request, serve func()) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// SetClock makes the server's clock differ from this host's.
func (s *Server) SetClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

// Start starts a server, which is closed at the end of the test. The settings are made before that.
func Start(t testing.TB, settings ...func(*Server)) *Server {
	t.Helper()
	s := &Server{objects: map[string]object{}}
	for _, set := range settings {
		set(s)
	}
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

// ServeHTTP serves the requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer, ahead := s.answer, s.ahead
	s.mu.Unlock()
	w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	if answer == nil || !answer(w, r, func() { s.serve(httptest.NewRecorder(), r) }) {
		s.serve(w, r)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
		s.list(w, key, r.URL.Query())
	case r.Method == http.MethodGet:
		s.mu.Lock()
		o, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>") // the client may have gone
			return
		}
		w.Header().Set("ETag", etag(o.body))
		http.ServeContent(w, r, "", o.at, strings.NewReader(string(o.body)))
	case r.Method == http.MethodPut:
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
		status := s.put(key, body, r.Header)
		w.Header().Set("ETag", etag(body))
		w.WriteHeader(status)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// list answers ListObjectsV2 of a bucket, the path. The token of a page is the index of its first
// object.
func (s *Server) list(w http.ResponseWriter, bucket string, query url.Values) {
	type content struct{ Key string }
	var answer struct {
		XMLName               xml.Name  `xml:"ListBucketResult"`
		Contents              []content `xml:"Contents"`
		NextContinuationToken string    `xml:",omitempty"`
	}
	s.mu.Lock()
	var keys []string
	for path := range s.objects {
		if key, ok := strings.CutPrefix(path, bucket); ok && strings.HasPrefix(key, query.Get("prefix")) {
			keys = append(keys, key)
		}
	}
	s.mu.Unlock()
	slices.Sort(keys)
	first, _ := strconv.Atoi(query.Get("continuation-token"))
	end := min(first+cmp.Or(s.Page, 1000), len(keys))
	if end < len(keys) {
		answer.NextContinuationToken = strconv.Itoa(end)
	}
	for _, key := range keys[min(first, end):end] {
		if query.Get("encoding-type") == "url" {
			key = url.QueryEscape(key)
		}
		answer.Contents = append(answer.Contents, content{key})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(answer) // the client may have gone
}

// torn is how long a torn server takes from the check of a condition to the write.
const torn = 20 * time.Millisecond

// put writes an object if the conditions of a request hold.
func (s *Server) put(key string, body []byte, header http.Header) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[key]
	match := header.Get("If-Match")
	if !s.Lax && (match != "" && (!ok || match != etag(old.body)) || header.Get("If-None-Match") == "*" && ok) {
		return http.StatusPreconditionFailed
	}
	if s.Torn {
		s.mu.Unlock()
		time.Sleep(torn)
		s.mu.Lock()
	}
	s.objects[key] = object{body, time.Now().Add(s.ahead)}
	return http.StatusOK
}

func etag(body []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(body)) }

// Len returns the number of objects.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}
