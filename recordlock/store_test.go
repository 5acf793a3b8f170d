package recordlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

const (
	name = "invoice"
	key  = "fencelock.lock/" + name
	ttl  = 10 * time.Second
)

// noClock are records of a store that has no clock, and does not report changes.
type noClock struct{ driver.Records }

func (noClock) Clock(context.Context) (earliest, latest time.Time, err error) {
	return earliest, latest, driver.ErrUnsupported
}

// link is one client's connection to a store. It delays and changes what passes.
type link struct {
	driver.Records

	mu     sync.Mutex                    // guards the fields below
	before time.Duration                 // until a request arrives
	after  time.Duration                 // until its answer arrives
	ahead  time.Duration                 // of the store's clock
	blind  bool                          // the store's clock cannot be read
	down   bool                          // reads fail
	deny   bool                          // reads are not allowed
	most   int                           // the largest value in bytes; 0 is no limit
	tamper func([]byte) []byte           // changes what is read
	swap   func(next func() error) error // replaces a Swap; next executes it
	gets   int
	swaps  int
}

func (l *link) set(f func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *link) now() link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return link{before: l.before, after: l.after, ahead: l.ahead, blind: l.blind, down: l.down, deny: l.deny, most: l.most, tamper: l.tamper, swap: l.swap}
}

func (l *link) Get(ctx context.Context, key string) (driver.Record, error) {
	l.set(func(l *link) { l.gets++ })
	now := l.now()
	time.Sleep(now.before)
	if now.down {
		return driver.Record{}, driver.ErrUnavailable
	}
	if now.deny {
		return driver.Record{}, driver.ErrConfig
	}
	rec, err := l.Records.Get(ctx, key)
	time.Sleep(now.after)
	if now.tamper != nil && len(rec.Value) > 0 {
		rec.Value = now.tamper(rec.Value)
	}
	return rec, err
}

func (l *link) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	l.set(func(l *link) { l.swaps++ })
	now := l.now()
	time.Sleep(now.before)
	if now.most > 0 && len(value) > now.most {
		return "", driver.ErrInvalid
	}
	next := make(chan string, 1) // a late execution answers nobody
	execute := func() error {
		version, err := l.Records.Swap(context.WithoutCancel(ctx), key, value, version, ttl)
		if err == nil {
			next <- version
		}
		return err
	}
	if now.swap == nil {
		now.swap = func(execute func() error) error { return execute() }
	}
	if err := now.swap(execute); err != nil {
		return "", err
	}
	time.Sleep(now.after)
	return <-next, nil
}

func (l *link) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = l.Records.Clock(ctx)
	now := l.now()
	if now.blind {
		return earliest, latest, driver.ErrUnavailable
	}
	return earliest.Add(now.ahead), latest.Add(now.ahead), err
}

// scene is a store in a bubble.
type scene struct {
	*testing.T
	store *memlock.Engine
	clock bool // whether the store has one
}

// play runs a test in a bubble, on a store with or without a clock.
func play(t *testing.T, clock bool, test func(s scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(scene{t, memlock.New(nil), clock}) })
}

// client returns a new client and its connection.
func (s scene) client() (*recordlock.Engine, *link) {
	l := &link{Records: s.store.Records()}
	var records driver.Records = polled{l}
	if !s.clock {
		records = noClock{l}
	}
	e := recordlock.New(records, nil)
	s.Cleanup(func() { _ = e.Close() })
	return e, l
}

func request() driver.Request {
	return driver.Request{Name: name, TTL: ttl, Identity: driver.Identity{Host: "here", PID: 1}}
}

func waiting() driver.Request {
	req := request()
	req.Wait = true
	return req
}

func lease(g driver.Grant) driver.Lease {
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: ttl}
}

// acquire makes a request that must be granted.
func (s scene) acquire(e *recordlock.Engine, req driver.Request) driver.Grant {
	s.Helper()
	g, err := e.Acquire(s.Context(), req)
	if err != nil {
		s.Fatalf("acquire: %v", err)
	}
	return g
}

// ok fails the test on an error.
func (s scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
