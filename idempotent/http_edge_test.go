package idempotent_test

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// post sends a request with a key through a handler; a panic of it goes on.
func post(h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("tea"))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Authorization", "alice")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHTTPWrongStatus: a status that is none panics as it does without the handler, and is
// not kept.
func TestHTTPWrongStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 99, 1000} {
		var calls atomic.Int64
		h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(status)
			}
		}), nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("status %d does not panic", status)
				}
			}()
			post(h, "/", "a")
		}()
		if w := post(h, "/", "a"); w.Code != http.StatusOK || calls.Load() != 2 {
			t.Errorf("after status %d: %d, and %d calls", status, w.Code, calls.Load())
		}
	}
}

// TestHTTPSameAnswer: what is kept is the same bytes, whatever they are.
func TestHTTPSameAnswer(t *testing.T) {
	t.Parallel()
	const name, body = "attachment; filename=\"caf\xe9.txt\"", "\x00\xff\xfe binary"
	var calls atomic.Int64
	h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Disposition", name)
		w.Header()["X-Two"] = []string{"1", "2"}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(body))
	}), nil)
	for range 2 {
		w := post(h, "/", "a")
		if w.Code != http.StatusCreated || w.Header().Get("Content-Disposition") != name || len(w.Header()["X-Two"]) != 2 || w.Body.String() != body {
			t.Errorf("%d %q %q", w.Code, w.Header(), w.Body)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// TestHTTPUnderPrefixes: requests with two prefixes are two requests, though a handler in
// between has cut the prefixes off. So are requests to two hosts, unless HTTP.Host says that they are
// the same.
func TestHTTPUnderPrefixes(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	h := newStore(nil).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }), nil)
	mux := http.NewServeMux()
	mux.Handle("/one/", http.StripPrefix("/one", h))
	mux.Handle("/two/", http.StripPrefix("/two", h))
	for _, c := range []struct {
		path string
		want int
	}{
		{"/one/orders", http.StatusOK}, {"/one/orders", http.StatusOK}, {"/two/orders", http.StatusUnprocessableEntity},
		{"http://EXAMPLE.com/one/orders", http.StatusOK}, {"http://elsewhere.example/one/orders", http.StatusUnprocessableEntity},
	} {
		if w := post(mux, c.path, "a"); w.Code != c.want {
			t.Errorf("%s: %d, want %d", c.path, w.Code, c.want)
		}
	}
	same := newStore(nil).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }),
		&idempotent.HTTP{Host: func(*http.Request) string { return "shop" }})
	for _, path := range []string{"http://a.example/orders", "http://b.example/orders"} {
		if w := post(same, path, "a"); w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if calls.Load() != 2 {
		t.Errorf("%d calls", calls.Load())
	}
}

// TestHTTPRefusals: an answer by which a request is refused for now is sent and not kept, unless
// HTTP.Keep says so.
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		retryAfter string
		keep       func(int, http.Header) bool
		kept       bool
	}{
		{status: 200, kept: true}, {status: 204, kept: true}, {status: 303, kept: true}, {status: 400, kept: true}, {status: 404, kept: true}, {status: 422, kept: true},
		{status: 401}, {status: 403}, {status: 407}, {status: 408}, {status: 409}, {status: 412}, {status: 421}, {status: 423}, {status: 425}, {status: 428}, {status: 429}, {status: 499},
		{status: 500}, {status: 503}, {status: 599},
		{status: 202, retryAfter: "5"}, {status: 404, retryAfter: "5"}, {status: 429, retryAfter: "5"},
		{status: 409, keep: func(status int, h http.Header) bool { return status == 409 || idempotent.IsOutcome(status, h) }, kept: true},
		{status: 200, keep: func(int, http.Header) bool { return false }},
	} {
		var calls atomic.Int64
		h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
		}), &idempotent.HTTP{Keep: c.keep})
		for range 2 {
			if w := post(h, "/", "a"); w.Code != c.status {
				t.Errorf("status %d: %d", c.status, w.Code)
			}
		}
		if kept := calls.Load() == 1; kept != c.kept {
			t.Errorf("status %d, Retry-After %q, with a hook: %v: kept: %v", c.status, c.retryAfter, c.keep != nil, kept)
		}
	}
}

// TestHTTPFormOfBefore: a handler in between may have read the body to make a form of it. Another
// form is another request all the same.
func TestHTTPFormOfBefore(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	h := newStore(nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.PostForm.Get("cents") != "100" {
			t.Errorf("the form %v", r.PostForm)
		}
	}), nil)
	for _, c := range []struct {
		form string
		want int
	}{{"cents=100", http.StatusOK}, {"cents=100", http.StatusOK}, {"cents=900", http.StatusUnprocessableEntity}} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", "a")
		r.Header.Set("Authorization", "alice")
		if err := r.ParseForm(); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.form, w.Code, w.Body, c.want)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// TestHTTPFailed: whoever runs the service gets the errors that clients do not get, and of nothing
// else.
func TestHTTPFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		var heard []error
		var during error // what the engine fails with from the middle of a request
		h := over(engine, engine.Records(), nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			engine.Refuse(during)
			if r.URL.Path == "/broken" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}), &idempotent.HTTP{Failed: func(_ *http.Request, err error) { heard = append(heard, err) }})
		ask := func(path, key string, status, failures int) {
			t.Helper()
			heard = nil
			w := post(h, path, key)
			if w.Code != status || len(heard) != failures {
				t.Errorf("%d %s, and heard %v", w.Code, w.Body, heard)
			}
			for _, err := range heard {
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "down") {
					t.Errorf("heard %v", err)
				}
			}
		}
		ask("/", "a", http.StatusOK, 0)
		ask("/other", "a", http.StatusUnprocessableEntity, 0)
		ask("/broken", "b", http.StatusInternalServerError, 0)
		down := errors.New("down")
		during = down
		ask("/", "c", http.StatusOK, 1)
		ask("/", "d", http.StatusServiceUnavailable, 1)
	})
}

// TestHTTPFilesOfAForm: what a handler stores in files for a while is gone when it was served, even
// if it panics.
func TestHTTPFilesOfAForm(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	server := httptest.NewServer(newStore(nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil || files() != 1 {
			t.Errorf("%d files, %v", files(), err)
		}
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
	}), nil))
	defer server.Close()
	for _, path := range []string{"/", "/panic"} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("photo", "photo.jpg")
		if err == nil {
			_, err = part.Write(make([]byte, 10_000))
		}
		if err := errors.Join(err, form.Close()); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, &body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("Idempotency-Key", path)
		r.Header.Set("Authorization", "alice")
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			res.Body.Close()
		}
		if (err == nil) != (path == "/") {
			t.Errorf("%s: %v", path, err)
		}
	}
	server.Close() // the server has done with all
	if n := files(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}
