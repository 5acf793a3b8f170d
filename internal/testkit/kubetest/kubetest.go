// Package kubetest is a reference API server for tests: the Lease objects of Kubernetes
// (coordination.k8s.io/v1), with resource versions, conflicts, pages, watches, bookmarks and
// compaction as in kube-apiserver. It has no accounts apart from one token.
package kubetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Server keeps objects in memory. It is safe for concurrent use.
type Server struct {
	URL    string
	Lax    bool             // ignores the resourceVersion of a request; set it before use
	Token  string           // what requests must bear, unless it is empty; set it before use
	Server *httptest.Server // has the certificate of StartTLS

	mu        sync.Mutex // guards all below
	revision  int64
	compacted int64            // watches from an older revision are refused
	objects   map[string]entry // by path
	events    []event          // since compacted
	changed   chan struct{}    // closed and replaced with each event, and by Kick
	kicked    int              // counts calls of Kick
	answer    func(w http.ResponseWriter, r *http.Request, serve func()) bool
	ahead     time.Duration
}

// entry is an object, which is not modified.
type entry = map[string]any

// event is a change of an object.
type event struct {
	revision int64
	kind     string // ADDED, MODIFIED or DELETED
	path     string
	object   entry
}

// TB is the part of testing.TB that a server needs.
type TB interface {
	Helper()
	Cleanup(f func())
}

// Start starts a server, which is closed at the end of the test.
func Start(t TB) *Server {
	t.Helper()
	return start(t, (*httptest.Server).Start)
}

// StartTLS is Start with TLS and HTTP/2.
func StartTLS(t TB) *Server {
	t.Helper()
	return start(t, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
}

func start(t TB, listen func(*httptest.Server)) *Server {
	t.Helper()
	s := New()
	s.Server = httptest.NewUnstartedServer(s)
	listen(s.Server)
	t.Cleanup(func() {
		s.Intercept(nil)
		s.Server.CloseClientConnections()
		s.Server.Close()
	})
	s.URL = s.Server.URL
	return s
}

// Intercept calls f for each request from now on. serve lets the server execute the request and
// discards its answer. If f returns false, the server then executes the request and answers it. A
// nil f ends this.
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

// Compact drops the past: a watch from an earlier revision is refused.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.compacted, s.events = s.revision, nil
	s.wake()
}

// Kick ends all watches, with a bookmark before.
func (s *Server) Kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kicked++
	s.wake()
}

// Names returns the names of all objects, in order.
func (s *Server) Names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.objects {
		names = append(names, meta(object)["name"].(string))
	}
	slices.Sort(names)
	return names
}

// Object returns a copy of an object, or nil.
func (s *Server) Object(namespace, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.objects[prefix+namespace+"/leases/"+name])
}

// Put writes an object as another program does, whatever its version.
func (s *Server) Put(namespace, name string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := prefix + namespace + "/leases/"
	if status, answer := s.store(path, name, s.objects[path+name], clone(object), http.StatusOK); status != http.StatusOK {
		panic(answer)
	}
}

// Delete deletes an object as another program does.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := prefix + namespace + "/leases/" + name
	s.add("DELETED", path, clone(s.objects[path]))
	delete(s.objects, path)
}

// wake lets the watches look. The caller holds mu.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

const prefix = "/apis/coordination.k8s.io/v1/namespaces/"

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
	collection, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, prefix), "/leases")
	name = strings.TrimPrefix(name, "/")
	path := prefix + collection + "/leases/"
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil: // the client has gone
	case s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token:
		fail(w, http.StatusUnauthorized, "Unauthorized", "the token is wrong")
	case !strings.HasPrefix(r.URL.Path, prefix) || collection == "" || strings.Contains(collection+name, "/"):
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case r.Method == http.MethodGet && name == "" && r.URL.Query().Get("watch") == "true":
		s.watch(w, r, path)
	case r.Method == http.MethodGet && name == "":
		s.list(w, r, path)
	default:
		s.mu.Lock()
		status, answer := s.one(r, path, name, body)
		s.mu.Unlock()
		write(w, status, answer)
	}
}

// one executes a request for one object. The caller holds mu.
func (s *Server) one(r *http.Request, path, name string, body []byte) (int, any) {
	in := entry{}
	if len(body) > 0 && json.Unmarshal(body, &in) != nil || in == nil {
		return problem(http.StatusBadRequest, "BadRequest", "the body is no JSON")
	}
	old := s.objects[path+name]
	if r.Method == http.MethodPost {
		name, _ = meta(in)["name"].(string)
		if s.objects[path+name] != nil {
			return problem(http.StatusConflict, "AlreadyExists", fmt.Sprintf("leases %q already exists", name))
		}
		return s.store(path, name, nil, in, http.StatusCreated)
	}
	if old == nil {
		return problem(http.StatusNotFound, "NotFound", fmt.Sprintf("leases %q not found", name))
	}
	expected, _ := meta(in)["resourceVersion"].(string)
	if r.Method == http.MethodDelete {
		conditions, _ := in["preconditions"].(entry)
		expected, _ = conditions["resourceVersion"].(string)
	}
	if !s.Lax && expected != "" && expected != meta(old)["resourceVersion"] {
		return problem(http.StatusConflict, "Conflict", "the object has been modified")
	}
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, old
	case http.MethodPut:
		return s.store(path, name, old, in, http.StatusOK)
	case http.MethodPatch:
		if r.Header.Get("Content-Type") != "application/merge-patch+json" {
			return problem(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "only merge patches are known")
		}
		next := clone(old)
		merge(next, in)
		return s.store(path, name, old, next, http.StatusOK)
	case http.MethodDelete:
		delete(s.objects, path+name)
		gone := clone(old)
		s.add("DELETED", path+name, gone)
		return http.StatusOK, entry{"kind": "Status", "status": "Success"}
	}
	return problem(http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method)
}

// store validates and stores an object in place of an old one. An update without a change keeps the
// resourceVersion. The caller holds mu.
func (s *Server) store(path, name string, old, next entry, status int) (int, any) {
	if why := invalid(name, next); why != "" {
		return problem(http.StatusUnprocessableEntity, "Invalid", why)
	}
	next["apiVersion"], next["kind"] = "coordination.k8s.io/v1", "Lease"
	m := meta(next)
	m["namespace"] = strings.TrimSuffix(strings.TrimPrefix(path, prefix), "/leases/")
	m["name"] = name
	m["uid"], m["creationTimestamp"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", s.revision), time.Now().UTC().Format(time.RFC3339)
	kind := "ADDED"
	if old != nil {
		kind = "MODIFIED"
		for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
			m[field] = meta(old)[field]
		}
		if reflect.DeepEqual(old, next) {
			return status, old
		}
	}
	next = clone(next) // without the types of Go
	s.add(kind, path+name, next)
	s.objects[path+name] = next
	return status, next
}

// add makes a new revision of an object. The caller holds mu.
func (s *Server) add(kind, path string, object entry) {
	s.revision++
	meta(object)["resourceVersion"] = strconv.FormatInt(s.revision, 10)
	s.events = append(s.events, event{s.revision, kind, path, object})
	s.wake()
}

// list answers with the objects of a namespace that selectors select. The token of a page is the
// name after which it begins.
func (s *Server) list(w http.ResponseWriter, r *http.Request, path string) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.mu.Lock()
	items, next := []entry{}, ""
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		name, ok := strings.CutPrefix(p, path)
		if !ok || name <= query.Get("continue") || !selected(query.Get("fieldSelector"), query.Get("labelSelector"), s.objects[p]) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = meta(items[limit-1])["name"].(string)
			break
		}
		items = append(items, s.objects[p])
	}
	revision := strconv.FormatInt(s.revision, 10)
	s.mu.Unlock()
	write(w, http.StatusOK, entry{
		"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "items": items,
		"metadata": entry{"resourceVersion": revision, "continue": next},
	})
}

// watch streams the changes after a revision until the client goes, the time is over, or Kick. If
// there was a compaction since, it sends an error.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, path string) {
	query := r.URL.Query()
	from, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequest", "the resourceVersion is no number")
		return
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	end := time.After(time.Duration(max(seconds, 1)) * time.Second)
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	_ = flush.Flush() // an error means that the client has gone
	s.mu.Lock()
	kicked := s.kicked
	for {
		send, changed, over := []event(nil), s.changed, from < s.compacted
		first, _ := slices.BinarySearchFunc(s.events, from+1, func(e event, revision int64) int { return cmp.Compare(e.revision, revision) })
		for _, e := range s.events[first:] {
			if strings.HasPrefix(e.path, path) && selected(query.Get("fieldSelector"), query.Get("labelSelector"), e.object) {
				send = append(send, e)
			}
		}
		from = s.revision
		last := s.kicked != kicked
		s.mu.Unlock()
		if over {
			_, status := problem(http.StatusGone, "Expired", "too old resource version")
			line(w, "ERROR", status)
			return
		}
		for _, e := range send {
			line(w, e.kind, e.object)
		}
		if last {
			line(w, "BOOKMARK", entry{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": entry{"resourceVersion": strconv.FormatInt(from, 10)}})
			return
		}
		_ = flush.Flush()
		select {
		case <-changed:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
}

// line writes an event of a watch.
func line(w io.Writer, kind string, object any) {
	_ = json.NewEncoder(w).Encode(entry{"type": kind, "object": object}) // the client may have gone
}

// selected reports whether selectors, metadata.name=N and label=value, select an object.
func selected(field, label string, object entry) bool {
	name, byName := strings.CutPrefix(field, "metadata.name=")
	key, value, byLabel := strings.Cut(label, "=")
	labels, _ := meta(object)["labels"].(entry)
	return (!byName || meta(object)["name"] == name) && (!byLabel || labels[key] == value)
}

var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// invalid returns what is wrong with an object, or "".
func invalid(name string, object entry) string {
	annotations, _ := meta(object)["annotations"].(entry)
	size := 0
	for key, value := range annotations {
		text, ok := value.(string)
		if !ok || !utf8.ValidString(text) {
			return "metadata.annotations: no text"
		}
		size += len(key) + len(text)
	}
	spec, _ := object["spec"].(entry)
	seconds, set := spec["leaseDurationSeconds"].(float64)
	transitions, _ := spec["leaseTransitions"].(float64)
	switch {
	case len(name) > 253 || !subdomain.MatchString(name):
		return "metadata.name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
	case size > 256<<10:
		return "metadata.annotations: Too long: may not be more than 262144 bytes"
	case set && (seconds <= 0 || seconds != float64(int32(seconds))):
		return "spec.leaseDurationSeconds: must be greater than 0"
	case transitions < 0 || transitions != float64(int32(transitions)):
		return "spec.leaseTransitions: must be greater than or equal to 0"
	}
	for _, field := range []string{"acquireTime", "renewTime"} {
		text, ok := spec[field].(string)
		if _, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", text); ok && err != nil {
			return "spec." + field + ": " + err.Error()
		}
	}
	return ""
}

// meta returns the metadata of an object, which it adds if there are none.
func meta(object entry) entry {
	m, ok := object["metadata"].(entry)
	if !ok {
		m = entry{}
		object["metadata"] = m
	}
	return m
}

// merge applies a merge patch (RFC 7386).
func merge(target, patch entry) {
	for key, value := range patch {
		inner, isObject := value.(entry)
		switch old, ok := target[key].(entry); {
		case value == nil:
			delete(target, key)
		case isObject && ok:
			merge(old, inner)
		default:
			target[key] = value
		}
	}
}

// clone returns a deep copy.
func clone(object entry) (out entry) {
	if object == nil {
		return nil
	}
	text, _ := json.Marshal(object) // it came from JSON
	_ = json.Unmarshal(text, &out)
	return out
}

func problem(code int, reason, message string) (int, any) {
	return code, entry{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code}
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	_, status := problem(code, reason, message)
	write(w, code, status)
}

func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}
