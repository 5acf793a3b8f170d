package dashboard_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// The table for browsers without JavaScript shows every name and note as text.
func TestPageShowsHostileNamesAsText(t *testing.T) {
	engine := memlock.New(nil)
	if _, err := engine.Acquire(t.Context(), driver.Request{Name: hostile, TTL: time.Hour, Identity: driver.Identity{Host: "<b>h", PID: 1, Note: "</td><script>x</script>"}}); err != nil {
		t.Fatal(err)
	}
	page := get(pageOf(engine, dashboard.Config{Prefix: "<"}), "/?filter=%22%3E%3Cimg").Body.String()
	if strings.Contains(page, "\u202e") || strings.Contains(page, "<img") || strings.Count(page, "<script") != 1 {
		t.Errorf("a name is markup:\n%s", page)
	}
	page = get(pageOf(engine, dashboard.Config{}), "/").Body.String()
	for _, want := range []string{`&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;\u202egnp.exe`, "&lt;b&gt;h 1", "&lt;/td&gt;&lt;script&gt;x"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "<img") {
		t.Error("a name is markup")
	}
}

// The policy allows the style and the script of the page by their hashes, and nothing else inline.
func TestPolicy(t *testing.T) {
	w := get(pageOf(memlock.New(nil), dashboard.Config{}), "/")
	policy := w.Header().Get("Content-Security-Policy")
	for _, element := range []string{`(?s)<style>(.*?)</style>`, `(?s)<script type="module">(.*?)</script>`} {
		found := regexp.MustCompile(element).FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 1 {
			t.Fatalf("%d times %s", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("%s lacks %s", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
}

// A site that points its own name to this address is refused, on every path.
func TestHost(t *testing.T) {
	page := pageOf(memlock.New(nil), dashboard.Config{Hosts: []string{"ops.example.com"}})
	for host, ok := range map[string]bool{
		"127.0.0.1:7654": true, "[::1]:7654": true, "192.0.2.7": true, "localhost:7654": true, "LOCALHOST": true,
		"ops.example.com": true, "Ops.Example.com:8443": true, "ops.example.com.": true,
		"evil.example": false, "evil.example:7654": false, "127.0.0.1.evil.example": false, "localhost.evil.example:1": false, "": false,
	} {
		for _, path := range []string{"/", "/metrics", "/events", "/break"} {
			r := request(http.MethodHead, path)
			r.Host = host
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			if refused := w.Code == http.StatusMisdirectedRequest; refused == ok {
				t.Errorf("%s%s: %d", host, path, w.Code)
			}
		}
	}
}

// The page works below a path, with and without http.StripPrefix.
func TestPaths(t *testing.T) {
	page := pageOf(memlock.New(nil), dashboard.Config{})
	for path, want := range map[string]int{"/": 200, "/a/b/": 200, "/a/metrics": 200, "/none": 404, "/break": 404, "/a/events/": 200} {
		if w := get(page, path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get(http.StripPrefix("/a", page), "/a/"); w.Code != 200 {
		t.Errorf("stripped: %d", w.Code)
	}
}

// post sends an order.
func post(page http.Handler, order map[string]string, header ...string) *httptest.ResponseRecorder {
	body, _ := json.Marshal(order)
	r := httptest.NewRequest(http.MethodPost, "/break", bytes.NewReader(body))
	r.Host = "127.0.0.1:7654"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w
}

// A lock is taken from one owner, if MayBreak allows it. Its successor keeps it.
func TestBreak(t *testing.T) {
	engine := memlock.New(nil)
	page := pageOf(engine, dashboard.Config{Prefix: "st", MayBreak: func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			return errors.New("no token")
		}
		return nil
	}})
	lease := acquire(t, engine, "stock", "web-1", time.Hour)
	other := acquire(t, engine, "other", "web-1", time.Hour)
	order := func(owner, reason string) map[string]string {
		return map[string]string{"name": "stock", "owner": owner, "reason": reason}
	}
	good := order(lease.Owner, "stuck")
	for name, c := range map[string]struct {
		page   http.Handler
		order  map[string]string
		header []string
		want   int
	}{
		"a page that only reads": {pageOf(engine, dashboard.Config{}), good, []string{"Authorization", "Bearer sesame"}, http.StatusForbidden},
		"no token":               {page, good, nil, http.StatusUnauthorized},
		"a foreign origin":       {page, good, []string{"Authorization", "Bearer sesame", "Origin", "https://evil.example"}, http.StatusForbidden},
		"a foreign site":         {page, good, []string{"Authorization", "Bearer sesame", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"a form":                 {page, good, []string{"Authorization", "Bearer sesame", "Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
		"no owner":               {page, order("", "stuck"), []string{"Authorization", "Bearer sesame"}, http.StatusBadRequest},
		"no reason":              {page, order(lease.Owner, " "), []string{"Authorization", "Bearer sesame"}, http.StatusBadRequest},
		"an earlier owner":       {page, order("gone", "stuck"), []string{"Authorization", "Bearer sesame"}, http.StatusConflict},
		"another prefix": {
			page, map[string]string{"name": "other", "owner": other.Owner, "reason": "stuck"},
			[]string{"Authorization", "Bearer sesame"}, http.StatusForbidden,
		},
	} {
		if w := post(c.page, c.order, c.header...); w.Code != c.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if errs := engine.Renew(t.Context(), []driver.Lease{lease}); errs[0] != nil {
			t.Fatalf("%s: %v", name, errs[0])
		}
	}
	w := post(page, good, "Authorization", "Bearer sesame", "Origin", "http://127.0.0.1:7654")
	if errs := engine.Renew(t.Context(), []driver.Lease{lease}); w.Code != 200 || !regexp.MustCompile(`^\{"token":"\d+"\}`).Match(w.Body.Bytes()) || !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("%d %s: %v", w.Code, w.Body, errs[0])
	}
}

// The metrics cover all holders of the engine, and list it at most once per interval.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &counted{Engine: memlock.New(nil)}
		acquire(t, engine, "stock", "web-1", time.Hour)
		page := pageOf(engine, dashboard.Config{})
		time.Sleep(90 * time.Second)
		for range 10 {
			get(page, "/metrics")
		}
		text := get(page, "/metrics").Body.String()
		for _, want := range []string{`fencelock_ui_locks_held{engine="memory"} 1`, `fencelock_ui_up{engine="memory"} 1`, `fencelock_ui_oldest_hold_seconds{engine="memory"} 90`} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("%s\nlacks %s", text, want)
			}
		}
		if n := engine.lists.Load(); n != 1 {
			t.Errorf("%d lists", n)
		}
		engine.Refuse(errors.New("down"))
		time.Sleep(time.Second)
		if text := get(page, "/metrics").Body.String(); !strings.Contains(text, `fencelock_ui_up{engine="memory"} 0`) {
			t.Error(text)
		}
	})
}

// Jobs are read for a window that shows them. Elections without a leader are shown.
func TestJobsAndElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		locks := fencelock.New(engine, nil)
		job := cron.New(locks, "nightly", nil)
		_ = job.Tick(t.Context(), time.Now(), func(context.Context) error { time.Sleep(2 * time.Second); return errors.New("disk full") })
		if err := job.Pause(t.Context(), "maintenance"); err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, engine, "billing", "web-1", time.Hour)
		ctx, resign := context.WithCancel(t.Context())
		defer resign()
		go func() { // a candidate; ends with resign
			_, _ = engine.Acquire(ctx, driver.Request{Name: "billing", TTL: time.Hour, Wait: true})
		}()
		page := dashboard.New(locks, &dashboard.Config{Elections: []string{"billing", "search"}})
		without, with := watch(t, page, ""), watch(t, page, "?jobs=1")
		look()
		look()
		if u, _ := without.last(t); len(u.Jobs) != 0 {
			t.Errorf("%+v", u.Jobs)
		}
		u, _ := with.last(t)
		if len(u.Jobs) != 1 || u.Jobs[0].Last.State != cron.StateFailed || u.Jobs[0].Last.Error != "disk full" || u.Jobs[0].Last.Ended.Sub(u.Jobs[0].Last.Started) != 2*time.Second || u.Jobs[0].Paused.Reason != "maintenance" {
			t.Errorf("%+v", u.Jobs)
		}
		if e := u.Elections; len(e) != 2 || len(e[0].Holders) != 1 || e[0].Holders[0].Host != "web-1" || len(e[0].Strip) != 1 || e[0].Waiting != 1 || len(e[1].Holders) != 0 {
			t.Errorf("%+v", e)
		}
		time.Sleep(10 * time.Second)
		if u, _ := with.last(t); u.Held != 1 || u.Waiting != 0 || u.LongestWait != 0 || len(u.Hot) != 0 {
			t.Errorf("a candidate counts as waiting: %+v", u)
		}
		release(t, engine, lease)

		// Of a name that the page does not list, and of an engine that is down, nobody knows who leads.
		other := watch(t, dashboard.New(locks, &dashboard.Config{Prefix: "se", Elections: []string{"billing", "search"}}), "")
		look()
		if u, _ := other.last(t); len(u.Elections) != 1 || u.Elections[0].Name != "search" {
			t.Errorf("%+v", u.Elections)
		}
		engine.Refuse(errors.New("down"))
		down := watch(t, dashboard.New(locks, &dashboard.Config{Elections: []string{"billing"}}), "")
		look()
		if u, _ := down.last(t); len(u.Elections) != 0 || u.Error == "" {
			t.Errorf("%+v", u)
		}
	})
}

// An election is recognised by its candidates. When they are all gone, the page says that nobody
// leads, also when the name is no longer listed.
func TestElectionsAreRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		locks := fencelock.New(engine, nil)
		acquire(t, engine, "stock", "web-1", time.Hour)
		hold(t, engine, driver.Request{Name: "fencelock:check", TTL: time.Hour, Identity: driver.Identity{Kind: fencelock.KindCheck}}) // is not shown
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for range 2 {
			go func() { // ends with stop
				_ = election.Run(ctx, locks, "billing", func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
		}
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		u, rows := w.last(t)
		if e := u.Elections; len(e) != 1 || e[0].Name != "billing" || len(e[0].Holders) != 1 || e[0].Waiting != 1 || u.Held != 2 || u.Waiting != 0 || rows["billing"].Kind != "election" || rows["stock"].Kind != "" {
			t.Errorf("%+v", u)
		}
		stop()
		time.Sleep(time.Minute)
		if u, _ := w.last(t); len(u.Order) != 1 || len(u.Elections) != 1 || u.Elections[0].Name != "billing" || len(u.Elections[0].Holders) != 0 {
			t.Errorf("%+v", u)
		}
	})
}

// plainEngine can lock and list, as Redlock can: it has no records.
type plainEngine struct {
	driver.Engine
	driver.Lister
}

// An engine that has no records shows its locks, and says that it has no jobs. One that cannot list
// says so.
func TestEnginesWithLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		acquire(t, engine, "stock", "web-1", time.Hour)
		w := watch(t, pageOf(plainEngine{engine, engine}, dashboard.Config{}), "?jobs=1")
		look()
		if u, rows := w.last(t); len(rows) != 1 || !strings.Contains(u.JobError, "cannot keep records") {
			t.Errorf("%+v", u)
		}
		if page := get(pageOf(struct{ driver.Engine }{engine}, dashboard.Config{}), "/"); !strings.Contains(page.Body.String(), "cannot list locks") {
			t.Error(page.Body)
		}
	})
}
