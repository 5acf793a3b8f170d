package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// heard collects the errors of HTTP.Failed.
type heard struct {
	mu   sync.Mutex
	errs []error
}

func (h *heard) failed(_ *http.Request, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, err)
}

func (h *heard) all() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]error(nil), h.errs...)
}

// some returns all errors, and waits for the first one: Failed may be called after the key is free again.
func (h *heard) some() []error {
	for end := time.Now().Add(10 * time.Second); len(h.all()) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	return h.all()
}

// backend is a server that declares 20 bytes and dies after 7 of them, but for every second request.
func backend(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "20")
		if asked.Add(1) == 1 {
			_, _ = w.Write([]byte("charged"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("charged 1 of 1 cents"))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s.URL
}

// ask sends a request with the key a, and returns the status and the body as far as they came.
func ask(ctx context.Context, t *testing.T, url string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("tea"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "a")
	r.Header.Set("Authorization", "alice")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// TestHTTPBackendDies: the answer of a proxy whose backend died is cut. It is not stored, whether the
// proxy ignores the error of the copy or panics, and the next request gets the whole answer.
func TestHTTPBackendDies(t *testing.T) {
	t.Parallel()
	for name, proxy := range map[string]func(to *url.URL) http.Handler{
		"by hand": func(to *url.URL) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				res, err := http.Post(to.String(), "text/plain", r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadGateway)
					return
				}
				defer res.Body.Close()
				w.Header().Set("Content-Length", res.Header.Get("Content-Length"))
				_, _ = io.Copy(w, res.Body)
			})
		},
		"httputil": func(to *url.URL) http.Handler { return httputil.NewSingleHostReverseProxy(to) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			var failed heard
			to, err := url.Parse(backend(t, &asked))
			if err != nil {
				t.Fatal(err)
			}
			front := serve(t, newStore(nil), proxy(to), &idempotent.HTTP{Failed: failed.failed})
			if status, body, err := ask(t.Context(), t, front); err == nil {
				t.Errorf("the cut answer came as %d %q", status, body)
			}
			for range 2 {
				if status, body, err := ask(t.Context(), t, front); status != http.StatusOK || body != "charged 1 of 1 cents" || err != nil {
					t.Errorf("the retry: %d %q, %v", status, body, err)
				}
			}
			if asked.Load() != 2 {
				t.Errorf("the backend was asked %d times, want 2", asked.Load())
			}
			if errs := failed.some(); name == "by hand" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), "7 of 20 bytes")) {
				t.Errorf("Failed was called with %v", errs)
			}
		})
	}
}

// TestHTTPClientHangsUp: whatever a handler answers after the client has closed the connection is no
// outcome: neither what it has read so far, nor the error as a status that is stored otherwise.
func TestHTTPClientHangsUp(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(w http.ResponseWriter, err error){
		"what it has":   func(w http.ResponseWriter, _ error) { fmt.Fprint(w, "half") },
		"a bad request": func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) },
		"nothing":       func(http.ResponseWriter, error) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			var failed heard
			begun, over := make(chan struct{}), make(chan struct{})
			url := serve(t, newStore(nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) > 1 {
					fmt.Fprint(w, "whole")
					return
				}
				close(begun)
				<-r.Context().Done()
				respond(w, r.Context().Err())
				close(over)
			}), &idempotent.HTTP{Failed: failed.failed})
			ctx, hangUp := context.WithCancel(t.Context())
			go func() { <-begun; hangUp() }() // ends with the handler's beginning
			if _, _, err := ask(ctx, t, url); err == nil {
				t.Error("the client did not hang up")
			}
			<-over
			for range 2 {
				if status, body, err := ask(t.Context(), t, url); status != http.StatusOK || body != "whole" || err != nil {
					t.Errorf("the retry: %d %q, %v", status, body, err)
				}
			}
			if errs := failed.some(); runs.Load() != 2 || len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
				t.Errorf("%d runs, and Failed was called with %v", runs.Load(), errs)
			}
		})
	}
}

// TestHTTPDeclaredLength: only an answer of the declared length is an outcome. Answers that have no
// body by rule may declare any.
func TestHTTPDeclaredLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, length, body string
		status               int
		stored               bool
	}{
		{length: "3", body: "abc", status: 200, stored: true},
		{length: "3", body: "ab", status: 200}, {length: "3", body: "", status: 201}, {length: "3", body: "abcd", status: 200},
		{length: "0", body: "", status: 200, stored: true},
		{length: "3", body: "ab", status: 404},
		{length: "x", body: "ab", status: 200, stored: true}, {length: "-1", body: "ab", status: 200, stored: true}, // net/http removes these
		{length: "3", status: 304, stored: true},
		{length: "0", status: 204, stored: true},
		{method: http.MethodHead, length: "3", status: 200, stored: true},
		{status: 101},
	} {
		var runs atomic.Int64
		h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			if c.length != "" {
				w.Header().Set("Content-Length", c.length)
			}
			w.WriteHeader(c.status)
			n, err := io.WriteString(w, c.body)
			if long := len(c.body) > 3; long != errors.Is(err, http.ErrContentLength) {
				t.Errorf("%+v: Write returned %d, %v", c, n, err)
			}
		}), &idempotent.HTTP{Methods: []string{http.MethodPost, http.MethodHead}})
		for range 2 {
			r := httptest.NewRequest(c.method, "/", nil)
			if c.method == "" {
				r.Method = http.MethodPost
			}
			r.Header.Set("Idempotency-Key", "a")
			r.Header.Set("Authorization", "alice")
			w := httptest.NewRecorder()
			func() {
				defer func() { _ = recover() }() // an answer that is cut ends in a panic
				h.ServeHTTP(w, r)
			}()
			if w.Code != c.status {
				t.Errorf("%+v: %d %s", c, w.Code, w.Body)
			}
		}
		if stored := runs.Load() == 1; stored != c.stored {
			t.Errorf("%+v: stored: %t", c, stored)
		}
	}
}

// TestHTTPWritesMoreThanDeclared: what the client gets is whole, so it is the outcome.
func TestHTTPWritesMoreThanDeclared(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	url := serve(t, newStore(nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "abc")
		if _, err := io.WriteString(w, "\n"); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("Write returned %v", err)
		}
	}), nil)
	for range 2 {
		if status, body, err := ask(t.Context(), t, url); status != http.StatusOK || body != "abc" || err != nil || runs.Load() != 1 {
			t.Errorf("%d %q %v after %d runs", status, body, err, runs.Load())
		}
	}
}

// noLength removes the Content-Length, as compression does.
type noLength struct{ http.ResponseWriter }

func (w noLength) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

// TestHTTPCutBehindCompression: the client gets an error for an answer that is cut, even if it does
// not get the length.
func TestHTTPCutBehindCompression(t *testing.T) {
	t.Parallel()
	h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "ab")
	}), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noLength{w}, r) }))
	t.Cleanup(server.Close)
	if status, body, err := ask(t.Context(), t, server.URL); err == nil {
		t.Errorf("the cut answer came as %d %q", status, body)
	}
}

// TestHTTPNoContentType: an answer without a type has none in a replay either.
func TestHTTPNoContentType(t *testing.T) {
	t.Parallel()
	url := serve(t, newStore(nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}), nil)
	for range 2 {
		if res := send(t, url, "text/plain", ""); res.Header["Content-Type"] != nil {
			t.Errorf("%v", res.Header)
		}
	}
}

// TestHTTPBodyByRule: an answer that has no body by rule refuses one, as in net/http, and the replay
// has none.
func TestHTTPBodyByRule(t *testing.T) {
	t.Parallel()
	url := serve(t, newStore(nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "body"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("Write returned %v", err)
		}
	}), nil)
	for range 2 {
		if status, body, err := ask(t.Context(), t, url); status != http.StatusNoContent || body != "" || err != nil {
			t.Errorf("%d %q %v", status, body, err)
		}
	}
}

// TestHTTPAnonymous: clients that do not say who they are do not share keys, unless the service says
// that they do.
func TestHTTPAnonymous(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg           *idempotent.HTTP
		authorization string
		want          int
	}{
		"no Authorization":     {want: http.StatusBadRequest},
		"Authorization":        {authorization: "Bearer alice", want: http.StatusOK},
		"unknown to Client":    {cfg: &idempotent.HTTP{Client: func(*http.Request) string { return "" }}, authorization: "Bearer alice", want: http.StatusBadRequest},
		"known to Client":      {cfg: &idempotent.HTTP{Client: func(*http.Request) string { return "alice" }}, want: http.StatusOK},
		"keys that are global": {cfg: &idempotent.HTTP{Client: idempotent.SharedKeys}, want: http.StatusOK},
	} {
		var runs atomic.Int64
		h := newStore(nil).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs.Add(1) }), c.cfg)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", "a")
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if refused := w.Code == http.StatusBadRequest; w.Code != c.want || refused != strings.Contains(w.Body.String(), "Authorization header") || refused == (runs.Load() == 1) {
			t.Errorf("%s: %d %s, and %d runs", name, w.Code, w.Body, runs.Load())
		}
	}
}

// TestHTTPKeep: a handler that says so has done the work, whatever becomes of the exchange and
// whatever the status. It is not done again; an answer that is cut is not given to anybody.
func TestHTTPKeep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		hangUp  bool
		replay  int // the status that retries get, 0 if the request is handled again
	}{
		"a final conflict": {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }, replay: http.StatusConflict},
		"a failure":        {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, replay: http.StatusBadGateway},
		"a hang-up":        {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, hangUp: true, replay: http.StatusCreated},
		"a cut answer":     {handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") }, replay: http.StatusConflict},
		"a panic":          {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			h := newStore(nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) > 1 {
					return
				}
				idempotent.Keep(r.WithContext(context.WithoutCancel(r.Context()))) // also of a request in between
				if c.hangUp {
					hangUp()
				}
				c.handler(w, r)
			}), nil)
			for i := range 3 {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("tea"))
				if i > 0 {
					r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("tea"))
				}
				r.Header.Set("Idempotency-Key", "a")
				r.Header.Set("Authorization", "alice")
				w := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }() // the panic of one case
					h.ServeHTTP(w, r)
				}()
				if i > 0 && c.replay > 0 && w.Code != c.replay {
					t.Errorf("retry %d: %d %s", i, w.Code, w.Body)
				}
			}
			if again := runs.Load() > 1; again != (c.replay == 0) {
				t.Errorf("%d runs", runs.Load())
			}
		})
	}
	idempotent.Keep(httptest.NewRequest(http.MethodPost, "/", nil)) // outside of Handler it does nothing
}

// TestHTTPDetach: a detached handler finishes its work after a hang-up, and retries get its answer.
// The loss of the lock ends it all the same, and is no outcome.
func TestHTTPDetach(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	var runs atomic.Int64
	var failed heard
	begun, goOn, over := make(chan struct{}, 2), make(chan struct{}), make(chan error, 2)
	url := serve(t, jobs(engine, idempotent.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := fencelock.TokenFrom(r.Context())
		if n := runs.Add(1); !ok || token == 0 || r.Context().Value(http.ServerContextKey) == nil || n > 2 {
			t.Errorf("run %d has the token %d", n, token)
		}
		begun <- struct{}{}
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusBadRequest)
		case <-goOn:
			fmt.Fprint(w, "charged")
		}
		over <- context.Cause(r.Context())
	}), &idempotent.HTTP{Detach: true, Failed: failed.failed})

	lost := make(chan string, 1)
	go func() { // ends with the answer
		status, body, err := ask(t.Context(), t, url)
		lost <- fmt.Sprint(status, body, err)
	}()
	<-begun
	engine.Lose("idempotent/" + heldName(t, engine))
	if err := <-over; !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("the cause of the end is %v", err)
	}
	if answer := <-lost; !strings.HasPrefix(answer, "500") {
		t.Errorf("after the loss: %s", answer)
	}

	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-begun; hangUp() }() // ends with the handler's beginning
	if _, _, err := ask(ctx, t, url); err == nil {
		t.Error("the client did not hang up")
	}
	retry := make(chan string, 1)
	go func() { // ends with the answer
		status, body, err := ask(t.Context(), t, url)
		retry <- fmt.Sprint(status, body, err)
	}()
	select {
	case err := <-over:
		t.Errorf("the hang-up ended the handler: %v", err)
	case <-time.After(100 * time.Millisecond): // the server notices a hang-up within that
	}
	close(goOn)
	if answer := <-retry; answer != "200charged<nil>" {
		t.Errorf("the retry: %s", answer)
	}
	if err := <-over; err != nil || runs.Load() != 2 || len(failed.all()) != 1 {
		t.Errorf("%v, %d runs, Failed was called with %v", err, runs.Load(), failed.all())
	}
}

// heldName returns the key of the run that holds its lock.
func heldName(t *testing.T, engine *memlock.Engine) string {
	t.Helper()
	all, err := fencelock.New(engine, nil).List(t.Context(), "idempotent/")
	if err != nil || len(all) != 1 {
		t.Fatalf("%d locks, %v", len(all), err)
	}
	return strings.TrimPrefix(all[0].Name, "idempotent/")
}

// TestHTTPTimeoutOutside: a TimeoutHandler belongs in front of Handler. The key stays taken as long as
// the handler runs, so no two run at once.
func TestHTTPTimeoutOutside(t *testing.T) {
	t.Parallel()
	var at, most, runs atomic.Int64
	goOn := make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		<-goOn
		fmt.Fprint(w, "done")
	})
	s := newStore(nil).With(idempotent.Options{NoWait: true})
	server := httptest.NewServer(http.TimeoutHandler(s.Handler(slow, &idempotent.HTTP{Detach: true}), 50*time.Millisecond, ""))
	t.Cleanup(server.Close)
	for range 3 {
		if status, _, err := ask(t.Context(), t, server.URL); status != http.StatusServiceUnavailable && status != http.StatusConflict {
			t.Errorf("%d, %v", status, err)
		}
	}
	close(goOn)
	for status := 0; status != http.StatusOK; {
		var body string
		var err error
		if status, body, err = ask(t.Context(), t, server.URL); err != nil || status == http.StatusOK && body != "done" {
			t.Fatalf("%d %q, %v", status, body, err)
		}
	}
	if most.Load() != 1 || runs.Load() != 1 {
		t.Errorf("%d runs, %d at once", runs.Load(), most.Load())
	}
}

// TestHTTPNoHijack: a handler that wants the connection is told that it cannot have it, and its
// refusal is no outcome.
func TestHTTPNoHijack(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	url := serve(t, newStore(nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		rc := http.NewResponseController(w)
		_, _, err := rc.Hijack()
		if flushed := rc.Flush(); !errors.Is(err, http.ErrNotSupported) || !errors.Is(flushed, http.ErrNotSupported) {
			t.Errorf("Hijack returns %v, and Flush %v", err, flushed)
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}), nil)
	for range 2 {
		if status, _, err := ask(t.Context(), t, url); status != http.StatusInternalServerError || err != nil {
			t.Errorf("%d %v", status, err)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

// TestHTTPCutRequest: a request whose body ends early is not handled.
func TestHTTPCutRequest(t *testing.T) {
	t.Parallel()
	next := &service{}
	url := serve(t, newStore(nil), next, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: alice\r\nIdempotency-Key: a\r\nContent-Length: 20\r\n\r\ntea")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), " 400 ") || next.calls.Load() != 0 {
		t.Errorf("%q, %v; %d calls", answer, err, next.calls.Load())
	}
}
