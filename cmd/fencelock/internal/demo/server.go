//go:build unix

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// socket is the name of the server's socket, in the directory of the demo.
const socket = "lock"

// call is what a client sends on a connection of its own, and answer is what it gets.
type (
	call struct {
		Verb     string // acquire or renew
		Lease    driver.Lease
		Wait     bool
		Identity driver.Identity
	}
	answer struct {
		Grant   driver.Grant
		Error   string // "" if there is none
		NotHeld bool   // the error is driver.ErrNotHeld
	}
)

// The verbs of a call. A worker has a step acquire, too.
const (
	acquire = "acquire"
	renew   = "renew"
)

// server gives other processes the locks of a memlock engine.
type server struct {
	engine   *memlock.Engine
	listener net.Listener
	renewed  func(note string) // called after each renewal
	running  sync.WaitGroup

	mu     sync.Mutex // guards tokens
	tokens []int64    // those of the engine, which are long; clients get their places, from 1 on
}

// serve starts a server on a socket. Its calls end with ctx.
func serve(ctx context.Context, path string, renewed func(note string)) (*server, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &server{engine: memlock.New(nil), listener: listener, renewed: renewed}
	s.running.Go(func() { // ends when stop closes the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.answer(ctx, conn) })
		}
	})
	return s, nil
}

// stop ends the server. The context of serve must have ended.
func (s *server) stop() {
	_ = s.listener.Close()
	s.running.Wait()
}

// answer answers the call on a connection. If the client is gone or ctx ends, the call ends too.
func (s *server) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := json.NewDecoder(conn)
	var c call
	if in.Decode(&c) != nil {
		return
	}
	s.running.Go(func() { // ends when the connection is closed
		_ = in.Decode(new(call)) // the client sends nothing more
		cancel()
	})
	grant, err := s.do(ctx, c)
	a := answer{Grant: grant, NotHeld: errors.Is(err, driver.ErrNotHeld)}
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(a) // a client without its answer lets the lease expire
}

// do does what a call asks for.
func (s *server) do(ctx context.Context, c call) (driver.Grant, error) {
	switch c.Verb {
	case acquire:
		grant, err := s.engine.Acquire(ctx, driver.Request{Name: c.Lease.Name, TTL: c.Lease.TTL, Wait: c.Wait, Identity: c.Identity})
		if err == nil {
			grant.Token = s.number(grant.Token)
			grant.Floor = grant.Token
		}
		return grant, err
	case renew:
		c.Lease.Token = s.token(c.Lease.Token)
		err := s.engine.Renew(ctx, []driver.Lease{c.Lease})[0]
		if err == nil {
			s.renewed(c.Identity.Note)
		}
		return driver.Grant{}, err
	}
	return driver.Grant{}, fmt.Errorf("unknown verb %q", c.Verb)
}

// number returns a short number for a token of the engine. Later tokens get greater numbers, since
// all are of one exclusive lock.
func (s *server) number(token int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, token)
	return int64(len(s.tokens))
}

// token returns the token of the engine that a number stands for.
func (s *server) token(number int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[number-1]
}

// client is the engine of a worker.
type client struct{ note string }

// Traits returns those of memlock that matter for exclusive locks.
func (client) Traits() driver.Traits {
	return driver.Traits{Engine: "demo", Leased: true, Order: driver.OrderAll}
}

// Acquire makes one acquisition. The grant has no time, so its lease is confirmed first.
func (e client) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	a, err := e.call(ctx, call{
		Verb: acquire, Lease: driver.Lease{Name: req.Name, TTL: req.TTL}, Wait: req.Wait, Identity: req.Identity,
	})
	a.Grant.Sent = time.Time{}
	return a.Grant, err
}

// Renew extends leases.
func (e client) Renew(ctx context.Context, leases []driver.Lease) (errs []error) {
	for _, l := range leases {
		_, err := e.call(ctx, call{Verb: renew, Lease: l, Identity: driver.Identity{Note: e.note}})
		errs = append(errs, err)
	}
	return errs
}

// Release does nothing: the leases of workers expire.
func (client) Release(context.Context, driver.Lease) error { return nil }

// call sends c and waits for the answer, or for the end of ctx.
func (e client) call(ctx context.Context, c call) (a answer, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		err = json.NewEncoder(conn).Encode(c)
	}
	if err == nil {
		err = json.NewDecoder(conn).Decode(&a)
	}
	switch {
	case err != nil:
		return a, fmt.Errorf("%w: %w", driver.ErrUnavailable, errors.Join(err, ctx.Err()))
	case a.NotHeld:
		return a, driver.ErrNotHeld
	case a.Error != "":
		return a, fmt.Errorf("%w: %s", driver.ErrUnavailable, a.Error)
	}
	return a, nil
}
