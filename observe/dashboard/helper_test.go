package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// counted counts the lists of an engine.
type counted struct {
	*memlock.Engine
	lists atomic.Int64
}

func (c *counted) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	c.lists.Add(1)
	return c.Engine.List(ctx, q)
}

// update is what the tests read of an event.
type update struct {
	Held, Waiting, Names, Lost, Late, Matching int
	LongestWait                                int64 `json:"longest_wait"`
	Rate                                       float64
	Error                                      string
	Order                                      []string
	Rows                                       []row
	Points                                     [][3]int64
	Hot                                        []struct {
		Name   string
		Waited float64
	}
	Elections []row
	Jobs      []cron.Status
	JobError  string `json:"job_error"`
}

type row struct {
	Name    string
	Kind    string
	Limit   int
	Holders []struct {
		Owner, Token, Host, Note string
		Since, Ends, Lease, Most int64
		Late                     int
	}
	Waiters []struct {
		Host     string
		Position int
	}
	Waiting int
	Strip   []struct {
		From, To int64
		Host     string
		Lost     bool
	}
}

// window is a browser that shows the page.
type window struct {
	close func()

	mu     sync.Mutex
	buffer string
	events []update
}

// watch opens the events of a page. The window closes with the test, or with close.
func watch(t *testing.T, page http.Handler, query string) *window {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, ended := new(window), make(chan struct{})
	w.close = func() { cancel(); <-ended }
	go func() { // ends with close
		defer close(ended)
		page.ServeHTTP(w, request(http.MethodGet, "/events"+query).WithContext(ctx))
	}()
	t.Cleanup(w.close)
	return w
}

func request(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:7654"
	return r
}

func (w *window) Header() http.Header { return http.Header{} }
func (w *window) WriteHeader(int)     {}
func (w *window) Flush()              {}

func (w *window) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buffer += string(p)
	for {
		event, rest, ok := strings.Cut(w.buffer, "\n\n")
		if !ok {
			return len(p), nil
		}
		var u update
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &u); err != nil {
			return 0, err
		}
		w.buffer, w.events = rest, append(w.events, u)
	}
}

// all returns the events so far.
func (w *window) all() []update {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

// last returns the last event, with the rows of all events.
func (w *window) last(t *testing.T) (update, map[string]row) {
	t.Helper()
	events, rows := w.all(), map[string]row{}
	if len(events) == 0 {
		t.Fatal("no event")
	}
	for _, e := range events {
		for _, r := range e.Rows {
			rows[r.Name] = r
		}
	}
	return events[len(events)-1], rows
}

// get returns the answer to a request.
func get(page http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, request(http.MethodGet, path))
	return w
}

// acquire acquires a lock as a host, which does not renew it.
func acquire(t *testing.T, engine driver.Engine, name, host string, ttl time.Duration) driver.Lease {
	t.Helper()
	grant, err := engine.Acquire(t.Context(), driver.Request{Name: name, TTL: ttl, Wait: true, Identity: driver.Identity{Host: host, PID: 7, Note: "a note"}})
	if err != nil {
		t.Error(err)
	}
	return driver.Lease{Name: name, Owner: grant.Owner, Token: grant.Token, TTL: ttl}
}

func release(t *testing.T, engine driver.Engine, lease driver.Lease) {
	t.Helper()
	if err := engine.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// pageOf returns the page of an engine.
func pageOf(engine driver.Engine, cfg dashboard.Config) *dashboard.Handler {
	return dashboard.New(fencelock.New(engine, nil), &cfg)
}
