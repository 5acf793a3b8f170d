package idempotent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// service counts what it is asked to do, and tells the count.
type service struct {
	calls atomic.Int64
	wait  chan struct{} // holds calls back until it is closed; nil holds none back
	asked chan struct{} // receives each call, if it is not nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := s.calls.Add(1)
	if s.asked != nil {
		s.asked <- struct{}{}
	}
	if s.wait != nil {
		<-s.wait
	}
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		panic(err)
	case string(body) == "broken":
		http.Error(w, fmt.Sprint("broken ", n), http.StatusInternalServerError)
		return
	case string(body) == "refused":
		http.Error(w, fmt.Sprint("refused ", n), http.StatusNotFound)
		return
	}
	w.Header().Set("Location", fmt.Sprint("/order/", n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "order %d: %s", n, body)
	w.Header().Set("Too", "late")
}

// request is one request of a test, and what is expected.
type request struct {
	method, path, key, body, user string
	status                        int
	want                          string // a part of the answer
}

// send sends a request, and checks the answer.
func (q request) send(t *testing.T, url string) (header http.Header, body string) {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), q.method, url+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	r.Header.Set("Authorization", cmp.Or(q.user, "alice"))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	if res.StatusCode != q.status || !strings.Contains(string(b), q.want) {
		t.Errorf("%s %s, key %s, body %.20q: %d %q; want %d %q", q.method, q.path, q.key, q.body, res.StatusCode, b, q.status, q.want)
	}
	if q.status >= 400 && strings.Contains(res.Header.Get("Content-Type"), "problem") {
		var p struct{ Status int }
		if err := json.Unmarshal(b, &p); err != nil || p.Status != q.status {
			t.Errorf("the problem document %q: %v", b, err)
		}
	}
	return res.Header, string(b)
}

// serve starts a server in front of a service.
func serve(t *testing.T, s *idempotent.Store, next http.Handler, cfg *idempotent.HTTP) (url string) {
	t.Helper()
	server := httptest.NewServer(s.Handler(next, cfg))
	t.Cleanup(server.Close)
	return server.URL
}

// TestHTTP goes through the cases of the draft.
func TestHTTP(t *testing.T) {
	t.Parallel()
	next := &service{}
	url := serve(t, newStore(&idempotent.Config{MaxResult: 1000}), next, &idempotent.HTTP{MaxBody: 5000})
	long := strings.Repeat("x", 2000)
	for _, q := range []request{
		{status: 400, want: "needs an Idempotency-Key"},
		{key: `"`, status: 400, want: "not one quoted string"}, {key: `""`, status: 400, want: "0 characters"}, {key: `"a`, status: 400}, {key: `"a", "b"`, status: 400, want: "not one quoted string"},
		{key: `a b`, status: 400, want: "must be in double quotes"}, {key: `a,b`, status: 400, want: "must be in double quotes"}, {key: `a"b`, status: 400, want: "must be in double quotes"}, {key: `a\b`, status: 400, want: "must be in double quotes"},
		{key: `"a\x"`, status: 400}, {key: `"a" ` + "x", status: 400}, {key: `"a";`, status: 400}, {key: `"a";V=1`, status: 400}, {key: `"a" ;v=1`, status: 400}, {key: `"a";v="`, status: 400}, {key: `a;v=1`, status: 400},
		{key: "ä", status: 400, want: "not printable ASCII"}, {key: `"ä"`, status: 400, want: "not printable ASCII"}, {key: "\xff", status: 400, want: "not printable ASCII"}, {key: strings.Repeat("k", 256), status: 400, want: "256 characters"},
		{key: `"one"`, body: "tea", status: 201, want: "order 1: tea"},
		{key: `"one"`, body: "tea", status: 201, want: "order 1: tea"},
		{key: `one`, body: "tea", status: 201, want: "order 1: tea"}, // without quotes it is the same
		{key: `"one";v=1`, body: "tea", status: 201, want: "order 1: tea"},
		{key: `"one"; v;x="a \";b";y=-1.5;z=?0;q=:aGk=:;t=tok/en;d=@17`, body: "tea", status: 201, want: "order 1: tea"},
		{key: `"one"`, body: "milk", status: 422, want: "used for another request"},
		{key: `"one"`, body: "tea", path: "/other", status: 422},
		{key: `"one"`, body: "tea", method: "PATCH", status: 422},
		{key: `"one"`, body: "tea", user: "another client", status: 201, want: "order 2"},
		{key: `"a \"quote\" and \\"`, body: "tea", status: 201, want: "order 3"},
		{key: strings.Repeat("k", 255), body: "tea", status: 201, want: "order 4"},
		{key: `"one"`, method: "GET", status: 201, want: "order 5"}, // which is idempotent by itself
		{key: `"one"`, method: "GET", status: 201, want: "order 6"},
		{key: `"two"`, body: "refused", status: 404, want: "refused 7"},
		{key: `"two"`, body: "refused", status: 404, want: "refused 7"},
		{key: `"three"`, body: "broken", status: 500, want: "broken 8"},
		{key: `"three"`, body: "broken", status: 500, want: "broken 9"}, // it is not kept
		{key: `"four"`, body: long, status: 201, want: long},
		{key: `"four"`, body: long, status: 409, want: "it was not stored"},
		{key: `"five"`, body: long + long + long, status: 413},
	} {
		q.send(t, url)
	}
	header, _ := request{key: `"one"`, body: "tea", status: 201}.send(t, url)
	if header.Get("Location") != "/order/1" || header.Get("Too") != "" {
		t.Errorf("the header of an answer that was kept: %v", header)
	}
	if got := next.calls.Load(); got != 10 {
		t.Errorf("%d calls, want 10", got)
	}
}

// TestHTTPInProgress: a request that does not wait is refused while the first one of its key is served,
// and gets its answer afterwards.
func TestHTTPInProgress(t *testing.T) {
	t.Parallel()
	next := &service{wait: make(chan struct{}), asked: make(chan struct{}, 1)}
	url := serve(t, newStore(nil).With(idempotent.Options{NoWait: true}), next, nil)
	first := make(chan string, 1)
	go func() { // ends with the answer
		_, body := request{key: "a", body: "tea", status: 201}.send(t, url)
		first <- body
	}()
	<-next.asked
	header, _ := request{key: "a", body: "tea", status: 409, want: "is still being handled"}.send(t, url)
	if header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(next.wait)
	if body := <-first; body != "order 1: tea" {
		t.Errorf("the first one: %q", body)
	}
	request{key: "a", body: "tea", status: 201, want: "order 1: tea"}.send(t, url)
}

// TestHTTPAtOnce: of 50 equal requests at once one is served, and all get its answer.
func TestHTTPAtOnce(t *testing.T) {
	t.Parallel()
	engine, next := memlock.New(nil), &service{}
	var urls []string
	for range 3 { // servers that share the records
		urls = append(urls, serve(t, jobs(engine, idempotent.Config{}), next, &idempotent.HTTP{Host: func(*http.Request) string { return "shop" }}))
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			header, _ := request{key: "a", body: "tea", status: 201, want: "order 1: tea"}.send(t, urls[i%len(urls)])
			if header.Get("Location") != "/order/1" {
				t.Errorf("header %v", header)
			}
		})
	}
	all.Wait()
	if got := next.calls.Load(); got != 1 {
		t.Errorf("%d calls", got)
	}
}

// TestHTTPWithoutRecords: nothing is done when the records cannot be asked; requests that
// need none are served.
func TestHTTPWithoutRecords(t *testing.T) {
	t.Parallel()
	engine, next := memlock.New(nil), &service{}
	engine.Refuse(errors.New("down"))
	url := serve(t, over(engine, engine.Records(), nil), next, &idempotent.HTTP{Optional: true})
	request{key: "a", body: "tea", status: 503, want: "was not handled"}.send(t, url)
	request{body: "tea", status: 201, want: "order 1"}.send(t, url)
	engine.Refuse(nil)
	request{key: "a", body: "tea", status: 201, want: "order 2"}.send(t, url)
}

// TestHTTPTakenOver: a request that was served once more meanwhile has no answer of its
// own, and the next one gets what is kept.
func TestHTTPTakenOver(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	records := engine.Records()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, err := records.List(context.Background(), "")
		if err != nil || len(list) != 1 {
			t.Errorf("%d records, %v", len(list), err)
			return
		}
		kept := `{"state":"done","owner":"another","token":1,"payload":` + payloadOf(t, list[0]) + "}\nHTTP/1.1 202 Accepted\r\n\r\nother"
		if _, err := records.Swap(context.Background(), list[0].Key, []byte(kept), list[0].Version, 0); err != nil {
			t.Error(err)
		}
	})
	url := serve(t, over(engine, records, nil), next, nil)
	request{key: "a", body: "tea", status: 500, want: "the outcome of this request is unknown"}.send(t, url)
	request{key: "a", body: "tea", status: 202, want: "other"}.send(t, url)
}

// payloadOf returns the fingerprint in a record, as JSON.
func payloadOf(t *testing.T, rec driver.Record) string {
	t.Helper()
	var st struct{ Payload json.RawMessage }
	head, _, _ := strings.Cut(string(rec.Value), "\n")
	if err := json.Unmarshal([]byte(head), &st); err != nil {
		t.Fatal(err)
	}
	return string(st.Payload)
}
