// Package objecttest is a reference object server for tests: GET, DELETE and conditional PUT as in
// RFC 9110, and lists of objects as in S3, or as Azure Blob Storage and Google Cloud Storage document
// them. It does not represent the server of any vendor.
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

	// Dialect is "" for that of S3, "azure" or "google". Set it before use.
	Dialect string

	// Pace is how long after a write of an object the next one is refused with 429. Set it before use.
	Pace time.Duration

	// Token is the bearer token that each request must have, if it is not empty. Set it before use.
	Token string

	// Page is how many objects a list contains at most. 0 means 1000. Set it before use.
	Page int

	mu      sync.Mutex // guards all below
	objects map[string]object
	hold    *Held
	answer  func(w http.ResponseWriter, r *http.Request, serve func()) bool
	ahead   time.Duration
	writes  int64
}

// object is an object and when it was written.
type object struct {
	body       []byte
	at         time.Time
	generation int64 // a number that no other write has
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
	key, query := r.URL.Path, r.URL.Query()
	switch wrong := s.refuses(r); {
	case wrong != "":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>Refused</Code><Message>"+wrong+"</Message></Error>")
	case r.Method == http.MethodGet && (query.Has("list-type") || query.Has("comp")):
		s.list(w, strings.TrimSuffix(key, "/")+"/", query)
	case r.Method == http.MethodGet:
		s.mu.Lock()
		o, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			code := map[string]string{"azure": "BlobNotFound"}[s.Dialect]
			_, _ = io.WriteString(w, "<Error><Code>"+cmp.Or(code, "NoSuchKey")+"</Code></Error>") // the client may have gone
			return
		}
		s.version(w, o)
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
		status, o := s.put(key, body, r.Header)
		s.version(w, o)
		if status == http.StatusConflict {
			w.Header().Set("X-Ms-Error-Code", "BlobAlreadyExists")
		}
		w.WriteHeader(status)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(map[bool]int{true: http.StatusAccepted, false: http.StatusNoContent}[s.Dialect == "azure"])
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// refuses returns what is wrong with a request in the dialect, or "".
func (s *Server) refuses(r *http.Request) string {
	h, put := r.Header, r.Method == http.MethodPut
	switch {
	case s.Token != "" && h.Get("Authorization") != "Bearer "+s.Token:
		return "no token"
	case s.Dialect == "azure" && (h.Get("X-Ms-Version") == "" || put && h.Get("X-Ms-Blob-Type") != "BlockBlob" || r.URL.Query().Has("list-type")):
		return "no x-ms-version, or no x-ms-blob-type of a write"
	case s.Dialect == "google" && (h.Get("If-Match") != "" || h.Get("If-None-Match") != "" || put && h.Get("X-Goog-If-Generation-Match") == ""):
		return "a write without x-goog-if-generation-match"
	case s.Dialect == "google" && put && strings.Trim(h.Get("X-Goog-If-Generation-Match"), "0123456789") != "":
		return "a generation that is no number"
	}
	return ""
}

// version sets the header with the version of an object.
func (s *Server) version(w http.ResponseWriter, o object) {
	w.Header().Set("ETag", etag(o.body))
	if s.Dialect == "google" {
		w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	}
}

// list answers a list of objects of a bucket, the path. The token of a page is the index of its first
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
	first, _ := strconv.Atoi(cmp.Or(query.Get("continuation-token"), query.Get("marker")))
	end := min(first+cmp.Or(s.Page, 1000), len(keys))
	if end < len(keys) {
		answer.NextContinuationToken = strconv.Itoa(end)
	}
	w.Header().Set("Content-Type", "application/xml")
	if s.Dialect == "azure" {
		var b strings.Builder
		b.WriteString("<EnumerationResults><Blobs>")
		for _, key := range keys[min(first, end):end] {
			b.WriteString("<Blob><Name>")
			_ = xml.EscapeText(&b, []byte(key)) // it does not fail
			b.WriteString("</Name></Blob>")
		}
		b.WriteString("</Blobs><NextMarker>" + answer.NextContinuationToken + "</NextMarker></EnumerationResults>")
		_, _ = io.WriteString(w, b.String()) // the client may have gone
		return
	}
	for _, key := range keys[min(first, end):end] {
		if query.Get("encoding-type") == "url" {
			key = url.QueryEscape(key)
		}
		answer.Contents = append(answer.Contents, content{key})
	}
	_ = xml.NewEncoder(w).Encode(answer) // the client may have gone
}

// torn is how long a torn server takes from the check of a condition to the write.
const torn = 20 * time.Millisecond

// put writes an object if the conditions of a request hold.
func (s *Server) put(key string, body []byte, header http.Header) (status int, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[key]
	match, generation := header.Get("If-Match"), header.Get("X-Goog-If-Generation-Match")
	switch {
	case s.Lax:
	case ok && time.Since(old.at.Add(-s.ahead)) < s.Pace:
		return http.StatusTooManyRequests, old
	case s.Dialect == "azure" && header.Get("If-None-Match") == "*" && ok:
		return http.StatusConflict, old
	case match != "" && (!ok || match != etag(old.body)), header.Get("If-None-Match") == "*" && ok,
		generation != "" && generation != strconv.FormatInt(old.generation, 10):
		return http.StatusPreconditionFailed, old
	}
	if s.Torn {
		s.mu.Unlock()
		time.Sleep(torn)
		s.mu.Lock()
	}
	s.writes++
	o = object{body, time.Now().Add(s.ahead), s.writes}
	s.objects[key] = o
	if s.Dialect == "azure" {
		return http.StatusCreated, o
	}
	return http.StatusOK, o
}

func etag(body []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(body)) }

// Len returns the number of objects.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}
