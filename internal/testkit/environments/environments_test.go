//go:build unix

package environments_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

var run = flag.Bool("environments", false, "set up every environment and print a table")

const (
	redisPatience = 4 * time.Second  // the default of RetryTimeout
	pgPatience    = 5 * time.Second  // the default of Timeout
	slack         = 7 * time.Second  // for a busy machine
	ttl           = 30 * time.Second // of locks that must not expire
)

// A row is one environment: what is set up there, what is done, and what must come of it.
type row struct {
	name  string
	start func(s *site)                            // sets up the environment
	fault func(s *site)                            // optional: what happens after the engine has been used once
	act   func(s *site, ctx context.Context) error // nil: take
	want  error                                    // the class of the error, nil if it must work
	words string                                   // in the error
	most  time.Duration                            // how long the caller is ready to wait, besides what the act itself takes
	skip  func(client string) (reason string)      // optional
}

// A site is an environment while its row is run.
type site struct {
	*testing.T
	clock  *hosttest.Clock
	client string
	engine driver.Engine
	redisSite
	pgSite
}

// kinds of errors, and their names in the table.
var kinds = []struct {
	err  error
	name string
}{
	{context.DeadlineExceeded, "deadline"}, {driver.ErrConfig, "ErrConfig"}, {driver.ErrUnavailable, "ErrUnavailable"},
	{driver.ErrNotHeld, "ErrNotHeld"}, {driver.ErrHeld, "ErrHeld"}, {driver.ErrUnsupported, "ErrUnsupported"},
}

func kindOf(err error) string {
	if err == nil {
		return "works"
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return "another error"
}

// table collects the lines of rows that run at the same time.
type table struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (tb *table) add(client, name, want, got string, took time.Duration) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.lines = append(tb.lines, fmt.Sprintf("| %-8s | %-46s | %-38s | %-14s | %7.2f s |", client, name, want, got, took.Seconds()))
}

func TestEnvironments(t *testing.T) {
	if !*run {
		t.Skip("make environments runs it")
	}
	tb := &table{}
	t.Run("all", func(t *testing.T) {
		for client, rows := range map[string][]row{"rueidis": redisRows(), "go-redis": redisRows(), "pgx": pgRows()} {
			for _, r := range rows {
				t.Run(client+"/"+r.name, func(t *testing.T) {
					t.Parallel()
					r.run(t, client, tb)
				})
			}
		}
	})
	fmt.Printf("| client   | %-46s | %-38s | %-14s | %9s |\n|---|---|---|---|---|\n", "environment", "expected", "came", "time")
	slices.Sort(tb.lines)
	for _, l := range tb.lines {
		fmt.Println(l)
	}
}

// run sets the environment up, does what the row says and judges the result.
func (r row) run(t *testing.T, client string, tb *table) {
	want := kindOf(r.want)
	if r.words != "" {
		want += ": " + r.words
	}
	if r.skip != nil {
		if reason := r.skip(client); reason != "" {
			tb.add(client, r.name, want, "-", 0)
			t.Skip(reason)
		}
	}
	s := &site{T: t, client: client}
	r.start(s)
	if s.engine == nil {
		s.open()
	}
	if r.fault != nil {
		if err := take(s, t.Context()); err != nil {
			t.Fatalf("before the fault: %v", err)
		}
		r.fault(s)
	}
	act := r.act
	if act == nil {
		act = take
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	err := act(s, ctx)
	took := time.Since(begun)
	came := kindOf(err)
	if r.want != nil && errors.Is(err, r.want) {
		came = kindOf(r.want)
	}
	tb.add(client, r.name, want, came, took)
	if r.want == nil && err != nil || r.want != nil && !errors.Is(err, r.want) {
		t.Errorf("%v, want %s", err, want)
	} else if err != nil && (!strings.Contains(strings.ToLower(err.Error()), strings.ToLower(r.words)) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("%v, want %q on one line", err, r.words)
	}
	if most := r.most + slack; took > most {
		t.Errorf("it took %v, and the caller was ready to wait %v: %v", took, r.most, err)
	}
}

func (s *site) open() {
	if s.client == "pgx" {
		s.openPostgres()
	} else {
		s.openRedis()
	}
}

// must is for errors that say nothing about the environment.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, TTL: ttl, Identity: driver.Identity{Host: "here", PID: 7}}
}

// hold acquires a name, does something and releases it.
func (s *site) hold(ctx context.Context, req driver.Request, do func(l driver.Lease) error) error {
	g, err := s.engine.Acquire(ctx, req)
	if err != nil {
		return err
	}
	l := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
	if err := do(l); err != nil {
		return err
	}
	return s.engine.Release(ctx, l)
}

func (s *site) renew(ctx context.Context, l driver.Lease) error {
	return s.engine.Renew(ctx, []driver.Lease{l})[0]
}

// take acquires a free name, renews it and releases it.
func take(s *site, ctx context.Context) error {
	return s.hold(ctx, request("n", ttl), func(l driver.Lease) error { return s.renew(ctx, l) })
}

// queue waits for a name, which its holder releases then.
func queue(s *site, ctx context.Context) error { return s.queueFor(ctx, 0) }

func (s *site) queueFor(ctx context.Context, wait time.Duration) error {
	next := request("q", ttl)
	next.Wait = true
	waits := make(chan struct{})
	var once sync.Once
	next.OnWait = func(driver.WaitInfo) { once.Do(func() { close(waits) }) }
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := s.hold(ctx, request("q", ttl), func(l driver.Lease) error {
		go func() { // ends when the waiter has been granted the name, or was refused
			ended <- s.hold(ctx, next, func(l driver.Lease) error { return s.renew(ctx, l) })
		}()
		select {
		case <-waits:
			time.Sleep(wait)
			return s.renew(ctx, l)
		case err := <-ended:
			ended <- err
			return nil
		}
	})
	if err != nil {
		return err
	}
	return <-ended
}

// waiting returns an act that holds a name for a time while another request waits for it.
func waiting(wait time.Duration) func(*site, context.Context) error {
	return func(s *site, ctx context.Context) error { return s.queueFor(ctx, wait) }
}

// briefly takes a name with little time.
func briefly(s *site, ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return take(s, ctx)
}

// survives holds a name while something happens, and renews it for longer than its TTL.
func survives(do func(s *site)) func(*site, context.Context) error {
	return func(s *site, ctx context.Context) error {
		const ttl = 9 * time.Second
		return s.hold(ctx, request("n", ttl), func(l driver.Lease) error {
			do(s)
			var err error
			for end := time.Now().Add(ttl - time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if err = s.renew(ctx, l); err == nil || !errors.Is(err, driver.ErrUnavailable) {
					return err
				}
			}
			return err
		})
	}
}

// proxy puts a proxy before a server.
func (s *site) proxy(addr string) (p *faults.Proxy) {
	p, err := faults.NewProxy(addr)
	must(s.T, err)
	s.Cleanup(func() { _ = p.Close() })
	return p
}

// silence drops what all connections of a proxy send from now on, as a NAT does with idle ones. New
// connections work.
func silence(p *faults.Proxy) {
	for _, l := range p.Links() {
		l.Stall(faults.Both)
	}
}

// program returns the path of a program, or a reason to skip a row.
func program(names ...string) (path, missing string) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, ""
		}
	}
	return "", names[0] + " is not installed"
}
