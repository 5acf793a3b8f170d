package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/memlock"
)

// put writes a value to a service, and returns the error of a refusal.
func put(ctx context.Context, client *http.Client, url, value string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(value))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := fence.Refused(response); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// A holder that was stopped for longer than its lease asks late, and bounces.
func ExampleHandler() {
	invoices := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(fence.Handler(new(fence.Memory), nil, invoices))
	defer server.Close()

	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)
	client := &http.Client{Transport: &fence.Transport{}}
	ctx := context.Background()

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	err = locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		return put(ctx, client, server.URL+"/invoices/42", "paid")
	})
	fmt.Println("next:", err)
	err = put(inFlight, client, server.URL+"/invoices/42", "cancelled")
	fmt.Println("late:", errors.Is(err, fence.ErrStale))
	// Output:
	// next: <nil>
	// late: true
}

// service is a resource behind a Handler, whose name has what URLs and headers escape.
func service(t *testing.T, store fence.Store, resource string) guardtest.Resource {
	var mu sync.Mutex // guards value
	value := ""
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if f, none := fence.From(r.Context()); err != nil || none != nil || f.Name != "lock" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		mu.Lock()
		defer mu.Unlock()
		value = string(body)
	})
	server := httptest.NewServer(fence.Handler(store, func(*http.Request) string { return resource }, handler))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &fence.Transport{}}
	return guardtest.Resource{
		Name:  resource,
		Write: func(ctx context.Context, v string) error { return put(ctx, client, server.URL+"/x", v) },
		Read: func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return value, nil
		},
	}
}

func TestHandler(t *testing.T) {
	if err := new(fence.Memory).Check(t.Context(), "r", fence.Fence{}); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("without a token: %v", err)
	}
	if err := guardtest.Run(t.Context(), service(t, new(fence.Memory), "näme \"quoted\"")); err != nil {
		t.Error(err)
	}
}

// broken is a store that does not answer.
type broken struct{}

func (broken) Check(context.Context, string, fence.Fence) error { return errors.New("down: secret") }

func TestHandlerAnswers(t *testing.T) {
	passed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, _ := fence.From(r.Context())
		fmt.Fprint(w, f)
	})
	memory := new(fence.Memory)
	if err := memory.Check(t.Context(), "/r", fence.Fence{Token: 1<<60 + 1, Floor: 1<<60 + 1}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store              fence.Store
		lock, token, floor []string
		status             int
		body               string
	}{
		"none":            {memory, nil, nil, nil, 428, "Fencelock-Name is missing"},
		"no token":        {memory, []string{"n"}, nil, []string{"1"}, 428, "Fencelock-Token is missing"},
		"no floor":        {memory, []string{"n"}, []string{"1"}, nil, 428, "Fencelock-Floor is missing"},
		"twice":           {memory, []string{"n"}, []string{"1", "2"}, []string{"1"}, 400, "more than once"},
		"no number":       {memory, []string{"n"}, []string{"x"}, []string{"1"}, 400, "0 < floor <= token"},
		"negative":        {memory, []string{"n"}, []string{"-1"}, []string{"-1"}, 400, "0 < floor <= token"},
		"too large":       {memory, []string{"n"}, []string{"9223372036854775808"}, []string{"1"}, 400, "0 < floor <= token"},
		"floor too large": {memory, []string{"n"}, []string{"1"}, []string{"2"}, 400, "0 < floor <= token"},
		"no name":         {memory, []string{"%zz"}, []string{"1"}, []string{"1"}, 400, "0 < floor <= token"},
		"no answer":       {broken{}, []string{"n"}, []string{"1"}, []string{"1"}, 503, `"the fencing token could not be checked","status":503}`},
		"stale": {memory, []string{"n"}, []string{"1152921504606846976"}, []string{"1"}, 412,
			`"status":412,"resource":"/r","token":"1152921504606846976","floor":"1152921504606846977"}`},
		"passed": {memory, []string{"a%2Fb%0Ac"}, []string{"1152921504606846978"}, []string{"1"}, 200, "{a/b\nc 1152921504606846978 1}"},
	} {
		r := httptest.NewRequest(http.MethodPut, "/r", nil)
		for header, values := range map[string][]string{"Fencelock-Name": c.lock, "Fencelock-Token": c.token, "Fencelock-Floor": c.floor} {
			for _, v := range values {
				r.Header.Add(header, v)
			}
		}
		w := httptest.NewRecorder()
		fence.Handler(c.store, nil, passed).ServeHTTP(w, r)
		if got := strings.ReplaceAll(w.Body.String(), `\u003c`, "<"); w.Code != c.status || !strings.Contains(got, c.body) || strings.Contains(got, "secret") {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, got, c.status, c.body)
		}
		if kind := w.Header().Get("Content-Type"); c.status != 200 && kind != "application/problem+json" {
			t.Errorf("%s: content type %q", name, kind)
		}
	}
}

// closing tells that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// respond answers every request.
type respond func(*http.Request) *http.Response

func (f respond) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The transport leaves the caller's request and the response as they are, and tells the
// tracer of a refusal. It sends nothing without a token.
func TestTransport(t *testing.T) {
	sent := 0
	transport := &fence.Transport{Base: respond(func(r *http.Request) *http.Response {
		sent++
		w := httptest.NewRecorder()
		memory := new(fence.Memory)
		if r.Header.Get("Late") != "" {
			_ = memory.Check(context.Background(), "r", fence.Fence{Token: 1 << 62, Floor: 1 << 62})
		}
		fence.Handler(memory, func(*http.Request) string { return "r" }, http.NotFoundHandler()).
			ServeHTTP(w, r.WithContext(context.Background())) // as on another host
		return w.Result()
	})}
	var told []fencelock.TraceStale
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(_ context.Context, d fencelock.TraceStale) { told = append(told, d) },
	}})
	lock := acquire(t, locks, "a")

	body := &closing{Reader: strings.NewReader("v")}
	r := httptest.NewRequest(http.MethodPut, "/x", body)
	if _, err := transport.RoundTrip(r); !errors.Is(err, fence.ErrNoToken) || sent != 0 || !body.closed {
		t.Errorf("without a token: %v, sent %d, closed %v", err, sent, body.closed)
	}
	r = r.WithContext(lock.Context())
	if got, err := transport.RoundTrip(r); err != nil || got.StatusCode != 404 || fence.Refused(got) != nil {
		t.Errorf("%+v, %v, want what the handler answers", got, err)
	}
	r.Header.Set("Late", "yes")
	got, err := transport.RoundTrip(r)
	if err != nil || !errors.Is(fence.Refused(got), fence.ErrStale) || len(r.Header) != 1 {
		t.Errorf("%+v, %v, the request has %v", got, err, r.Header)
	}
	if text, err := io.ReadAll(got.Body); err != nil || !strings.HasPrefix(string(text), `{"type":"tag:`) {
		t.Errorf("the body is %q, %v", text, err)
	}
	if want := []fencelock.TraceStale{{Resource: "r", Name: "a", Token: lock.Token(), Floor: 1 << 62, Kind: fencelock.KindLock, Engine: "memory"}}; !slices.Equal(told, want) {
		t.Errorf("the tracer was told %+v, want %+v", told, want)
	}
}

// A tracer that panics leaves no connection behind.
func TestTransportTracerThatPanics(t *testing.T) {
	var body *closing
	transport := &fence.Transport{Base: respond(func(*http.Request) *http.Response {
		w := httptest.NewRecorder()
		memory := new(fence.Memory)
		_ = memory.Check(t.Context(), "/x", fence.Fence{Token: 1 << 62, Floor: 1 << 62})
		late := httptest.NewRequest(http.MethodPut, "/x", nil)
		for _, header := range []string{"Fencelock-Name", "Fencelock-Token", "Fencelock-Floor"} {
			late.Header.Set(header, "1")
		}
		fence.Handler(memory, nil, http.NotFoundHandler()).ServeHTTP(w, late)
		r := w.Result()
		body = &closing{Reader: r.Body}
		r.Body = body
		return r
	})}
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: &fencelock.Tracer{
		Stale: func(context.Context, fencelock.TraceStale) { panic("tracer") },
	}})
	lock := acquire(t, locks, "a")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the tracer was not told")
			}
		}()
		_, _ = transport.RoundTrip(httptest.NewRequest(http.MethodPut, "/x", nil).WithContext(lock.Context()))
	}()
	if body == nil || !body.closed {
		t.Error("the body of the response is open")
	}
}

// A refusal is known by its type, however a server writes the header that says so.
func TestRefused(t *testing.T) {
	const body = `{"type":"tag:github.com,2026:fencelock/stale-token","status":412,"resource":"r","token":"1","floor":"2"}`
	answer := func(status int, contentType, body string) *http.Response {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return w.Result()
	}
	for _, contentType := range []string{
		"application/problem+json", "application/problem+json; charset=utf-8", "Application/Problem+JSON;charset=UTF-8",
	} {
		stale, ok := errors.AsType[*fence.StaleError](fence.Refused(answer(412, contentType, body)))
		if want := (fence.StaleError{Resource: "r", Token: 1, Floor: 2}); !ok || *stale != want {
			t.Errorf("%s: %v, want %v", contentType, stale, &want)
		}
	}
	for name, r := range map[string]*http.Response{
		"another status": answer(409, "application/problem+json", body), "another type of content": answer(412, "text/html; charset=utf-8", body),
		"no type of content": answer(412, "", body), "no problem": answer(412, "application/problem+json", "<html>"),
		"another problem": answer(412, "application/problem+json", `{"type":"about:blank","token":"1","floor":"2"}`),
	} {
		if err := fence.Refused(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// picky is a store that keeps no resource.
type picky struct{}

func (picky) Check(context.Context, string, fence.Fence) error {
	return fmt.Errorf("%w: too long", fence.ErrResource)
}

// TestHandlerOfAResourceThatCannotBeKept: it is the request that is wrong, and not the store: a
// client that tries again does so for nothing.
func TestHandlerOfAResourceThatCannotBeKept(t *testing.T) {
	h := fence.Handler(picky{}, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was passed on") }))
	r := httptest.NewRequest(http.MethodPut, "/invoice", nil)
	for name, value := range map[string]string{"Fencelock-Name": "a", "Fencelock-Token": "1", "Fencelock-Floor": "1"} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
