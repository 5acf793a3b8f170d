package dashboard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/dashboard"
)

var serve = flag.String("serve", "", "serve the page of this `scene` until stdin ends")

// hostile is a name that would be markup, and a note that would change the order of text.
const hostile = `<img src=x onerror=alert(1)>"'&` + "\u202egnp.exe"

// TestServe serves a scene to the browser of lab/browser. It prints the address and ends with its
// stdin. Without a scene there is nothing to do.
func TestServe(t *testing.T) {
	if *serve == "" {
		return
	}
	engine := memlock.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	elections := scene(ctx, t, engine, *serve)
	page := dashboard.New(fencelock.New(engine, nil), &dashboard.Config{
		Elections: elections,
		MayBreak: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer sesame" {
				return errors.New("the token is missing or wrong")
			}
			return nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/below/path/", page)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serving http://%s/below/path/\n", listener.Addr())
	go func() { // ends with the test binary
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	t.Error(http.Serve(listener, mux))
}

// scene fills an engine, and returns its elections.
func scene(ctx context.Context, t *testing.T, engine *memlock.Engine, name string) (elections []string) {
	count := 0
	switch name {
	case "shop":
		shop(ctx, t, engine)
		return []string{"search"}
	case "three":
		count = 3
	case "crowd":
		count = 300
	case "many":
		count = 10_000
	}
	for i := range count {
		hold(t, engine, driver.Request{Name: fmt.Sprintf("tenant:%d", i), TTL: time.Hour, Identity: driver.Identity{Host: fmt.Sprintf("worker-%d", i%9), PID: 1000 + i}})
	}
	return nil
}

// hold holds a lock until it expires.
func hold(t *testing.T, engine *memlock.Engine, req driver.Request) {
	t.Helper()
	if _, err := engine.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// shop is a web shop: short locks that others wait for, a leader, a semaphore, a nightly report, a
// holder that renews late, and one that dies again and again.
func shop(ctx context.Context, t *testing.T, engine *memlock.Engine) {
	hosts := []string{"web-1", "web-2", "web-3", "batch-1", "batch-2"}
	hold(t, engine, driver.Request{Name: hostile, TTL: time.Hour, Identity: driver.Identity{Host: "<b>evil</b>", PID: 5624, Note: "evil \u202e note"}})
	hold(t, engine, driver.Request{Name: "nightly-report", TTL: time.Minute, Identity: driver.Identity{Host: "batch-1", PID: 5316, Note: "2026-11-26T02:00:00Z"}})
	client := func(i int) *use { return &use{engine: engine.Client(), host: hosts[i%len(hosts)], pid: 5000 + 7*i} }
	for i := range 3 {
		go client(i).work(ctx, driver.Request{Name: "billing", TTL: 3 * time.Second, Wait: true, Identity: driver.Identity{Kind: fencelock.KindElection}}, "leader: billing", time.Hour)
	}
	for i := range 8 {
		go client(i).work(ctx, driver.Request{Name: "inventory:sku-7781", TTL: 10 * time.Second, Wait: true}, "reserve stock", 1500*time.Millisecond)
	}
	for i := range 5 {
		go client(i).work(ctx, driver.Request{Name: "gpu", TTL: 10 * time.Second, Wait: true, Mode: driver.Shared, Limit: 3}, "train", 6*time.Second)
		go client(i+1).work(ctx, driver.Request{Name: fmt.Sprintf("invoice:%d", 40+i%3), TTL: 10 * time.Second, Wait: true}, "POST /invoices", 400*time.Millisecond)
	}
	go client(4).die(ctx, driver.Request{Name: "import:feed-3", TTL: 2 * time.Second, Wait: true})
	locks := fencelock.New(engine, nil)
	for name, err := range map[string]error{"nightly": nil, "sweep": errors.New("disk full")} {
		job := cron.New(locks, name, nil)
		_ = job.Tick(ctx, time.Now().Truncate(time.Second), func(context.Context) error { return err })
	}
	_ = cron.New(locks, "mailing", nil).Pause(ctx, "maintenance")
}

// use is a process that uses locks.
type use struct {
	engine *memlock.Engine
	host   string
	pid    int
}

// work acquires a lock, holds it for about a while, renews it meanwhile, and begins again.
func (u *use) work(ctx context.Context, req driver.Request, note string, while time.Duration) {
	req.Host, req.PID, req.Note = u.host, u.pid, note
	for ctx.Err() == nil {
		grant, err := u.engine.Acquire(ctx, req)
		if err != nil {
			return
		}
		lease := driver.Lease{Name: req.Name, Owner: grant.Owner, Token: grant.Token, Mode: req.Mode, TTL: req.TTL}
		for end := time.Now().Add(while/2 + rand.N(while)); time.Now().Before(end); {
			time.Sleep(min(req.TTL/3, time.Until(end)))
			u.engine.Renew(ctx, []driver.Lease{lease})
		}
		_ = u.engine.Release(ctx, lease)
		time.Sleep(rand.N(300 * time.Millisecond))
	}
}

// die acquires a lock, does not renew it, and begins again.
func (u *use) die(ctx context.Context, req driver.Request) {
	req.Identity = driver.Identity{Host: u.host, PID: u.pid, Note: "dies"}
	for ctx.Err() == nil {
		if _, err := u.engine.Acquire(ctx, req); err != nil {
			return
		}
		time.Sleep(6 * time.Second)
	}
}
