package redislock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
)

// patience is how long something that must happen may take.
const patience = time.Minute

// long is the TTL of a lease that outlives its test.
const long = 10 * time.Minute

// scene is a server, and what a test asks of it.
type scene struct {
	testing.TB
	server *redistest.Redis
	looks  *observer
	lag    time.Duration // with replicas and a quarantine
	most   time.Duration // MaxTTL with a quarantine, if it is not 2 s
	brisk  bool          // what is granted to those who wait lasts 2 s, for tests of its end
}

type observer struct{ *redislock.Engine }

func newScene(t testing.TB, args ...string) scene {
	return scene{TB: t, server: redistest.StartRedis(t, args...), looks: &observer{}}
}

// engine returns another client of the server; cfg may be nil. It is patient,
// unless cfg says when it gives up.
func (s scene) engine(cfg *redislock.Config) *redislock.Engine {
	e, _ := s.tapped(cfg)
	return e
}

// tapped returns another client, and a tap on its calls and messages.
func (s scene) tapped(cfg *redislock.Config) (*redislock.Engine, *tap) {
	s.Helper()
	t := &tap{Conn: redisconn.Rueidis(rueidisClient(s, rueidisOption(s.server.Addr()))), longGrants: !s.brisk}
	e := redislock.NewConn(t, patient(cfg))
	s.Cleanup(func() { _ = e.Close() })
	return e, t
}

// patient makes an engine keep trying for half as long as a test does, unless cfg says
// otherwise: on a slow machine a dial may take seconds.
func patient(cfg *redislock.Config) *redislock.Config {
	full := redislock.Config{}
	if cfg != nil {
		full = *cfg
	}
	if full.RetryTimeout == 0 {
		full.RetryTimeout = patience / 2 // the test gets the reason
	}
	return &full
}

// request waits for name, for a lease that outlives the test.
func request(name string) driver.Request {
	return driver.Request{Name: name, TTL: long, Wait: true}
}

// brief waits for name, for a lease whose end the test waits for: it may be over
// before the next step.
func brief(name string) driver.Request {
	return driver.Request{Name: name, TTL: time.Second, Wait: true}
}

// shared makes a request a shared one, with a limit unless it is 0.
func shared(r driver.Request, limit int) driver.Request {
	r.Mode, r.Limit = driver.Shared, limit
	return r
}

func try(r driver.Request) driver.Request {
	r.Wait = false
	return r
}

// hold is an acquisition.
type hold struct {
	scene
	engine driver.Engine
	req    driver.Request
	driver.Grant
}

func (h hold) lease() driver.Lease {
	return driver.Lease{Name: h.req.Name, Owner: h.Owner, Token: h.Token, Mode: h.req.Mode, TTL: h.req.TTL}
}

func (h hold) renew() error {
	return h.engine.Renew(context.Background(), []driver.Lease{h.lease()})[0]
}

func (h hold) release() error { return h.engine.Release(context.Background(), h.lease()) }

// free releases and fails the test if that fails.
func (h hold) free() {
	h.Helper()
	if err := h.freed(); err != nil {
		h.Fatalf("releasing %q: %v", h.req.Name, err)
	}
}

// freed releases. On a slow machine an answer may be lost, and the lease may be over by
// then: that of a waiter is short.
func (h hold) freed() error {
	for end, lost := time.Now().Add(patience), false; ; lost = true {
		err := h.release()
		over := lost || time.Since(h.Sent) > h.TTL
		switch {
		case over && errors.Is(err, driver.ErrNotHeld):
			return nil
		case !errors.Is(err, driver.ErrUnavailable) || time.Now().After(end):
			return err
		}
	}
}

// call is an acquire under way.
type call struct {
	scene
	hold   hold
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// ask begins an acquire.
func (s scene) ask(e driver.Engine, req driver.Request) *call {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{scene: s, done: make(chan struct{}), cancel: cancel}
	s.Cleanup(func() { cancel(); <-c.done })
	go func() { // ends when the engine answers
		defer close(c.done)
		g, err := e.Acquire(ctx, req)
		c.hold, c.err = hold{s, e, req, g}, err
	}()
	return c
}

// queue begins an acquire and returns when it stands in the queue and knows it,
// if its engine can tell: a request whose answer dies with the server, and the
// queue with them, begins anew, maybe ahead of those that were before it.
func (s scene) queue(e driver.Engine, req driver.Request) *call {
	s.Helper()
	queued := func() int { return s.queued(req.Name) }
	if e, ok := e.(*redislock.Engine); ok {
		queued = func() int { return e.Queued(req.Name) }
	}
	before := queued()
	c := s.ask(e, req)
	s.until("queued", func() bool {
		if c.answered() {
			s.Fatalf("%q did not have to wait: %+v, %v", req.Name, c.hold.Grant, c.err)
		}
		return queued() > before
	})
	return c
}

// requeue is queue for a client that gives up soon, and is asked again if it did: on a
// slow machine an answer may take longer.
func (s scene) requeue(e *redislock.Engine, req driver.Request) (c *call) {
	s.Helper()
	s.until("queued", func() bool {
		for c = s.ask(e, req); !c.answered(); time.Sleep(5 * time.Millisecond) {
			if e.Queued(req.Name) == 1 {
				return true
			}
		}
		return false
	})
	return c
}

func (s scene) queued(name string) int {
	n, _ := strconv.Atoi(s.server.Do(s, "ZCARD", "fencelock:2:queue:{lock:"+name+"}"))
	return n
}

func (c *call) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ended waits for the answer.
func (c *call) ended() (hold, error) {
	c.Helper()
	select {
	case <-c.done:
		return c.hold, c.err
	case <-time.After(patience):
		c.Fatal("an acquire has no answer")
		panic("unreachable")
	}
}

// granted waits for a grant, whose lease must have begun in the past.
func (c *call) granted() hold {
	c.Helper()
	h, err := c.ended()
	if err != nil {
		c.Fatalf("acquire: %v", err)
	}
	if h.Sent.IsZero() || h.Sent.After(time.Now()) || h.TTL <= 0 {
		c.Fatalf("a grant from %v for %v", h.Sent, h.TTL)
	}
	return h
}

// kept is granted for a lock that is held on: the grant of a waiter is shorter, and is
// made a full lease, as a Locker does at once.
func (c *call) kept() hold {
	c.Helper()
	h := c.granted()
	sent := time.Now()
	if err := h.renew(); err != nil {
		c.Fatalf("renewing %q: %v", h.req.Name, err)
	}
	h.Sent, h.TTL = sent, h.req.TTL
	return h
}

// hold acquires.
func (s scene) hold(e driver.Engine, req driver.Request) hold {
	s.Helper()
	return s.ask(e, req).granted()
}

// hasty is a client that gives up soon. It has reached the server before.
func (s scene) hasty(giveUp time.Duration) (*redislock.Engine, *tap) {
	s.Helper()
	e, t := s.tapped(&redislock.Config{RetryTimeout: giveUp})
	s.warm(e)
	s.ready(e)
	return e, t
}

// hears gives up later and later, until the error is of a kind and has the words: on a
// slow machine a client may receive nothing in time.
func (s scene) hears(kind error, words string, ask func(giveUp time.Duration) error) {
	s.Helper()
	var err error
	for giveUp := time.Second; giveUp < patience; giveUp *= 2 {
		if err = ask(giveUp); errors.Is(err, kind) && strings.Contains(err.Error(), words) {
			return
		}
	}
	s.Fatalf("got %v, want %v with %q", err, kind, words)
}

// warm makes an engine reach the server, which may take longer than its RetryTimeout.
func (s scene) warm(e *redislock.Engine) {
	s.Helper()
	s.until("a first lock", func() bool {
		h, err := s.ask(e, request("warm")).ended()
		return err == nil && h.release() == nil
	})
}

// refused fails the test unless a try is refused as held.
func (s scene) refused(e driver.Engine, req driver.Request) *driver.HeldError {
	s.Helper()
	_, err := s.ask(e, try(req)).ended()
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		s.Fatalf("a try of %q: got %v, want a HeldError", req.Name, err)
	}
	return held
}

// until waits for a condition.
func (s scene) until(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("still not: %s", what)
		}
	}
}

// gone fails the test unless err is ErrNotHeld.
func (s scene) gone(err error) {
	s.Helper()
	if !errors.Is(err, driver.ErrNotHeld) {
		s.Fatalf("got %v, want ErrNotHeld", err)
	}
}

// status is what a client sees of a name.
func (s scene) status(name string) driver.Status {
	s.Helper()
	list, err := s.observer().List(context.Background(), driver.Query{Prefix: name, Exact: true})
	if err != nil {
		s.Fatal(err)
	}
	if len(list) == 0 {
		return driver.Status{Name: name}
	}
	return list[0]
}

// observer is a client that only looks.
func (s scene) observer() *redislock.Engine {
	if s.looks.Engine == nil {
		s.looks.Engine = s.engine(nil)
	}
	return s.looks.Engine
}

// clean waits until nobody holds name or waits for it.
func (s scene) clean(name string) {
	s.Helper()
	s.until("no trace of "+name, func() bool {
		return s.server.Do(s, "EXISTS", "lock:"+name, "fencelock:2:queue:{lock:"+name+"}") == "0"
	})
}

// clock is the server's time in microseconds.
func (s scene) clock() int64 {
	s.Helper()
	now := strings.Fields(s.server.Do(s, "TIME"))
	return number64(s, now[0])*1e6 + number64(s, now[1])
}

// keys lists all keys of the server.
func (s scene) keys() []string { return strings.Fields(s.server.Do(s, "KEYS", "*")) }

func number(n int64) string { return strconv.FormatInt(n, 10) }
