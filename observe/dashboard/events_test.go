package dashboard_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// look waits for the next look of a page with the default interval.
func look() {
	time.Sleep(510 * time.Millisecond)
	synctest.Wait()
}

// An acquisition, a wait, a hand-over and a release are shown by the next look.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		if u, _ := w.last(t); u.Names != 0 || len(u.Order) != 0 {
			t.Errorf("empty: %+v", u)
		}
		first := acquire(t, engine, "stock", "web-1", 30*time.Second)
		second := make(chan driver.Lease)
		go func() { second <- acquire(t, engine, "stock", "web-2", 30*time.Second) }()
		look()
		u, rows := w.last(t)
		r := rows["stock"]
		if u.Held != 1 || u.Waiting != 1 || u.LongestWait < 1 || len(r.Holders) != 1 || r.Holders[0].Host != "web-1" || r.Holders[0].Note != "a note" ||
			r.Holders[0].Lease != 30_000 || r.Holders[0].Token != fmt.Sprint(first.Token) || r.Waiting != 1 || r.Waiters[0].Host != "web-2" || r.Waiters[0].Position != 1 {
			t.Errorf("held and waited for: %+v %+v", u, r)
		}
		for range 4 {
			look()
		}
		release(t, engine, first)
		next := <-second
		look()
		u, rows = w.last(t)
		if r := rows["stock"]; u.Waiting != 0 || r.Holders[0].Host != "web-2" || len(r.Strip) != 2 || r.Strip[0].To == 0 || r.Strip[0].Lost || r.Strip[1].To != 0 || len(u.Hot) != 1 || u.Hot[0].Waited < 1.5 {
			t.Errorf("handed over: %+v %+v", u, r)
		}
		release(t, engine, next)
		look()
		if u, rows := w.last(t); u.Held != 0 || u.Names != 0 || len(u.Order) != 1 || len(rows["stock"].Holders) != 0 || u.Lost != 0 || u.Rate < 1 {
			t.Errorf("released: %+v", u)
		}
		time.Sleep(15 * time.Second)
		if u, _ := w.last(t); len(u.Order) != 0 {
			t.Errorf("long released: %+v", u)
		}
	})
}

// A window that is opened beside another one does not wait for the next look, which may be far off.
func TestSecondWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		acquire(t, engine, "stock", "web-1", time.Hour)
		engine.Delay(2 * time.Second)
		page := pageOf(engine, dashboard.Config{})
		watch(t, page, "")
		time.Sleep(5 * time.Second)
		second := watch(t, page, "")
		synctest.Wait()
		if u, _ := second.last(t); u.Held != 1 || len(u.Points) == 0 {
			t.Errorf("%+v", u)
		}
	})
}

// A window gets a row again only if it has changed.
func TestUnchangedRowsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		acquire(t, engine, "still", "web-1", time.Hour)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		for range 10 {
			look()
		}
		sent := 0
		for _, u := range w.all() {
			sent += len(u.Rows)
		}
		if sent != 1 || len(w.all()) < 10 {
			t.Errorf("%d rows in %d events", sent, len(w.all()))
		}
	})
}

// A holder that does not renew is shown as late and then as lost. One that releases is not.
func TestLateAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		acquire(t, engine, "dies", "web-1", 4*time.Second)
		for range 6 {
			look()
		}
		u, rows := w.last(t)
		if r := rows["dies"]; u.Late != 1 || r.Holders[0].Late != 1 || u.Lost != 0 {
			t.Errorf("late: %+v %+v", u, r)
		}
		for range 4 {
			look()
		}
		if u, _ := w.last(t); u.Lost != 1 || u.Held != 0 {
			t.Errorf("lost: %+v", u)
		}
	})
}

// Nobody lists without a viewer, many viewers cost as much as one, and slow lists take at most a
// tenth of the time.
func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &counted{Engine: memlock.New(nil)}
		page := pageOf(engine, dashboard.Config{})
		time.Sleep(time.Minute)
		if n := engine.lists.Load(); n != 0 {
			t.Errorf("%d lists without a viewer", n)
		}
		var windows []*window
		for range 5 {
			windows = append(windows, watch(t, page, ""))
		}
		time.Sleep(time.Minute)
		if n := engine.lists.Load(); n < 100 || n > 121 {
			t.Errorf("%d lists in a minute of five viewers", n)
		}
		engine.Delay(time.Second)
		time.Sleep(10 * time.Second)
		before := engine.lists.Load()
		time.Sleep(100 * time.Second)
		if n := engine.lists.Load() - before; n < 8 || n > 11 {
			t.Errorf("%d lists of a second in 100 seconds", n)
		}
		for _, w := range windows {
			w.close()
		}
		time.Sleep(time.Minute)
		before = engine.lists.Load()
		time.Sleep(time.Hour)
		if n := engine.lists.Load() - before; n != 0 {
			t.Errorf("%d lists after the last viewer has left", n)
		}
	})
}

// The time in which nobody looked is a gap. What ended in it was not lost before anybody's eyes.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		page := pageOf(engine, dashboard.Config{})
		first := watch(t, page, "")
		look()
		acquire(t, engine, "stock", "web-1", 10*time.Second)
		look()
		first.close()
		time.Sleep(time.Minute)
		acquire(t, engine, "stock", "web-2", 10*time.Second)
		w := watch(t, page, "")
		look()
		gaps := 0
		u, rows := w.last(t)
		if s := rows["stock"].Strip; len(s) != 2 || s[0].To == 0 || s[0].To-s[0].From > 30_000 {
			t.Errorf("the hold of the first window is drawn through the gap: %+v", s)
		}
		for _, e := range w.all() {
			for _, p := range e.Points {
				if p[1] < 0 {
					gaps++
				}
			}
		}
		if gaps != 2 || u.Lost != 0 { // before the first window, and between the two
			t.Errorf("%d gaps, %d lost", gaps, u.Lost)
		}
	})
}

// While the engine is down, the page says so and shows no new points.
func TestEngineIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		acquire(t, engine, "stock", "web-1", time.Hour)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		engine.Refuse(errors.New("no route to host"))
		time.Sleep(20 * time.Second)
		events := w.all()
		if u := events[len(events)-1]; u.Error == "" || len(u.Points) != 0 || len(u.Order) != 1 {
			t.Errorf("down: %+v", u)
		}
		engine.Refuse(nil)
		look()
		events = w.all()
		if u := events[len(events)-1]; u.Error != "" || len(u.Points) != 2 || u.Points[0][1] != -1 {
			t.Errorf("up again: %+v", u)
		}
	})
}

// When an engine that was silent answers again, the page shows it within a list and a pause.
func TestSilentEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		engine.Delay(time.Hour)
		time.Sleep(time.Minute)
		if u, _ := w.last(t); u.Error == "" {
			t.Errorf("silent: %+v", u)
		}
		engine.Delay(0)
		time.Sleep(11 * time.Second)
		if u, _ := w.last(t); u.Error != "" {
			t.Errorf("it answers again: %+v", u)
		}
	})
}

// Of ten thousand locks a window gets 200, and those that its filter asks for.
func TestManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		for i := range 10_000 {
			acquire(t, engine, fmt.Sprintf("tenant:%d", i), fmt.Sprintf("Web-%d", i%7), time.Hour)
		}
		page := pageOf(engine, dashboard.Config{})
		all, some, host := watch(t, page, ""), watch(t, page, "?filter=TENANT:777"), watch(t, page, "?filter=web-6")
		look()
		if u, rows := all.last(t); u.Held != 10_000 || u.Matching != 10_000 || len(rows) != 200 {
			t.Errorf("%d held, %d match, %d rows", u.Held, u.Matching, len(rows))
		}
		if u, rows := some.last(t); u.Matching != 11 || len(rows) != 11 || rows["tenant:7771"].Name == "" {
			t.Errorf("%d match, %d rows", u.Matching, len(rows))
		}
		if u, _ := host.last(t); u.Matching != 1428 {
			t.Errorf("%d match", u.Matching)
		}
	})
}

// A name that is waited for stands before names that are only held.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		for _, name := range []string{"a", "b", "z"} {
			acquire(t, engine, name, "web-1", time.Hour)
		}
		go func() { // ends with the engine's client
			_, _ = engine.Acquire(t.Context(), driver.Request{Name: "z", TTL: time.Hour, Wait: true})
		}()
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		look()
		if u, _ := w.last(t); fmt.Sprint(u.Order) != "[z a b]" {
			t.Errorf("%v", u.Order)
		}
		engine.Kill()
	})
}

// Close ends the streams, which a shutdown of the server would wait for.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := pageOf(memlock.New(nil), dashboard.Config{})
		w := watch(t, page, "")
		look()
		page.Close()
		synctest.Wait()
		seen := len(w.all())
		time.Sleep(time.Minute)
		if n := len(w.all()); n != seen {
			t.Errorf("%d events after Close", n-seen)
		}
	})
}

// TestMaximumHold: the page gets the end of a maximum hold, if there is one.
func TestMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		locks := fencelock.New(engine, nil)
		w := watch(t, pageOf(engine, dashboard.Config{}), "")
		for name, most := range map[string]time.Duration{"capped": time.Minute, "free": 0} {
			lock, err := locks.With(fencelock.Options{MaxHold: most}).Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Release() }()
		}
		look()
		_, rows := w.last(t)
		if h := rows["capped"].Holders[0]; h.Most != h.Since+60_000 || rows["free"].Holders[0].Most != 0 {
			t.Errorf("%+v, %+v", h, rows["free"].Holders[0])
		}
	})
}
