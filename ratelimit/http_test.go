package ratelimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// get sends a request through a middleware.
func get(h http.Handler, from string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var done = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })

// fields fails the test unless a response has these.
func fields(t *testing.T, w *httptest.ResponseRecorder, code int, want map[string]string) {
	t.Helper()
	if w.Code != code {
		t.Errorf("status %d, want %d: %s", w.Code, code, w.Body)
	}
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if got := w.Header().Get(name); got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := ratelimit.Limit{Events: 2, Per: 10 * time.Second, Burst: 2}
		h := ratelimit.Handler(ratelimit.New(memlock.New(nil), "api", limit, nil), nil, done)
		policy := `"api";q=2;w=10`
		const from = "192.0.2.1:1234"
		fields(t, get(h, from), 200, map[string]string{"RateLimit-Policy": policy, "RateLimit": `"api";r=1;t=5`})
		time.Sleep(1500 * ms)
		fields(t, get(h, from), 200, map[string]string{"RateLimit-Policy": policy, "RateLimit": `"api";r=0;t=4`})
		w := get(h, from)
		fields(t, w, 429, map[string]string{"RateLimit-Policy": policy, "RateLimit": `"api";r=0;t=4`, "Retry-After": "4"})
		var problem map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%v: %s", err, w.Body)
		}
		want := "map[status:429 title:too many requests type:https://iana.org/assignments/http-problem-types#quota-exceeded violated-policies:[api]]"
		if got := fmt.Sprint(problem); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		time.Sleep(4 * time.Second) // what Retry-After said
		fields(t, get(h, from), 200, map[string]string{"RateLimit-Policy": policy, "RateLimit": `"api";r=0;t=5`})
	})
}

// TestPolicyField: the policy is that of the rate, and the name is text.
func TestPolicyField(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		name  string
		limit ratelimit.Limit
	}{
		`"api";q=100;w=1`:      {"api", ratelimit.Limit{Events: 100, Burst: 20}},
		`"a\"\\";q=3;w=1`:      {`a"\`, ratelimit.PerSecond(3)},
		`"%C3%A4";q=60;w=3600`: {"ä", ratelimit.PerHour(60)},
		`"b";q=15;w=2`:         {"b", ratelimit.Limit{Events: 15, Per: 2 * time.Second, Burst: 12}},
		`"m";q=11;w=60`:        {"m", ratelimit.PerMinute(11)},
		`"h";q=490;w=36000`:    {"h", ratelimit.Limit{Events: 49, Per: time.Hour, Burst: 490}},
		`"d";q=1;w=86400`:      {"d", ratelimit.Limit{Events: 1, Per: 24 * time.Hour}},
	} {
		w := get(ratelimit.Handler(ratelimit.New(memlock.New(nil), c.name, c.limit, patient), nil, done), "192.0.2.1:1")
		if got := w.Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%v: %s, want %s", c.limit, got, want)
		}
	}
}

// TestAddresses: an IPv4 address is a client, whatever port and form it comes in, and an
// IPv6 network.
func TestAddresses(t *testing.T) {
	t.Parallel()
	h := ratelimit.Handler(ratelimit.New(memlock.New(nil), "api", ratelimit.PerHour(1), patient), nil, done)
	for _, c := range []struct {
		from string
		code int
	}{
		{"192.0.2.1:1", 200}, {"192.0.2.1:2", 429}, {"[::ffff:192.0.2.1]:3", 429}, {"192.0.2.2:1", 200},
		{"[2001:db8::1]:1", 200}, {"[2001:db8::2]:1", 429}, {"[2001:db8:0:1::1]:1", 200}, {"[fe80::1%eth0]:1", 200}, {"[fe80::2%eth1]:1", 429},
		{"@", 200}, {"@", 429}, {"pipe:1", 200}, {"pipe:2", 429}, {"", 200},
	} {
		if w := get(h, c.from); w.Code != c.code {
			t.Errorf("%s: %d, want %d", c.from, w.Code, c.code)
		}
	}
}

// TestHandlerWithoutEngine: 503 if nothing is decided, no fields if nobody counts.
func TestHandlerWithoutEngine(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	engine.Refuse(errors.New("connection refused"))
	closed := ratelimit.Handler(ratelimit.New(engine, "api", ratelimit.PerHour(1), patient), nil, done)
	w := get(closed, "192.0.2.1:1")
	fields(t, w, 503, nil)
	if got := w.Body.String(); got != `{"type":"about:blank","title":"the rate limit could not be checked","status":503}`+"\n" {
		t.Error(got)
	}
	open := ratelimit.Handler(ratelimit.New(engine, "api", ratelimit.PerHour(1), &ratelimit.Config{Down: ratelimit.FailOpen, Timeout: time.Minute}), nil, done)
	fields(t, get(open, "192.0.2.1:1"), 200, nil)
	bad := ratelimit.Handler(ratelimit.New(engine, "api", ratelimit.PerHour(1), patient), func(*http.Request) string { return "\xff" }, done)
	fields(t, get(bad, "192.0.2.1:1"), 400, nil)
	senseless := ratelimit.Handler(ratelimit.New(engine, "api", ratelimit.PerHour(0), patient), nil, done)
	fields(t, get(senseless, "192.0.2.1:1"), 503, nil) // no request can do anything about it
	local := &ratelimit.Config{Down: ratelimit.FailLocal, Local: ratelimit.PerMinute(2), Timeout: time.Minute}
	here := ratelimit.Handler(ratelimit.New(engine, "api", ratelimit.PerHour(1), local), nil, done)
	fields(t, get(here, "192.0.2.1:1"), 200, map[string]string{"RateLimit-Policy": `"api";q=2;w=60`, "RateLimit": `"api";r=1;t=30`})
}
