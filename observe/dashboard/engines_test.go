//go:build unix

package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// Each engine that ships shows a holder and a waiter of another client, their hand-over, and a lock
// that was taken away.
func TestEngines(t *testing.T) {
	for name, start := range engines.All(time.Minute) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := start(t)
			one, two := connect(), connect()
			page := dashboard.New(fencelock.New(connect(), nil), &dashboard.Config{MayBreak: func(*http.Request) error { return nil }})
			w := watch(t, page, "?jobs=1")
			first := acquire(t, one, "stock", "web-1", time.Minute)
			second := make(chan driver.Lease, 1)
			go func() { second <- acquire(t, two, "stock", "web-2", time.Minute) }() // ends with the hand-over
			r := w.until(t, func(r row) bool { return len(r.Holders) == 1 && r.Waiting == 1 })
			if h := r.Holders[0]; h.Host != "web-1" || h.Note != "a note" || h.Owner != first.Owner || h.Since == 0 || (name == "files") != (h.Ends == 0) {
				t.Errorf("%+v", r)
			}
			release(t, one, first)
			next := <-second
			if errs := two.Renew(t.Context(), []driver.Lease{next}); errs[0] != nil { // a hand-over begins with a short lease
				t.Error(errs[0])
			}
			r = w.until(t, func(r row) bool { return len(r.Holders) == 1 && r.Holders[0].Owner == next.Owner && r.Waiting == 0 })
			if len(r.Strip) != 2 || r.Strip[0].To == 0 || r.Strip[1].To != 0 {
				t.Errorf("%+v", r.Strip)
			}
			if a := post(page, map[string]string{"name": "stock", "owner": next.Owner, "reason": "a test"}); a.Code != http.StatusOK {
				t.Errorf("break: %d %s", a.Code, a.Body)
			}
			if u, _ := w.last(t); len(u.Jobs) != 0 || (name == "redlock") != (u.JobError != "") {
				t.Errorf("jobs: %v %s", u.Jobs, u.JobError)
			}
		})
	}
}

// until waits until the row of the name stock is as wanted.
func (w *window) until(t *testing.T, wanted func(row) bool) row {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if len(w.all()) > 0 {
			if _, rows := w.last(t); wanted(rows["stock"]) {
				return rows["stock"]
			}
		}
		if time.Now().After(end) {
			u, rows := w.last(t)
			t.Fatalf("%+v %+v", u, rows)
		}
	}
}
