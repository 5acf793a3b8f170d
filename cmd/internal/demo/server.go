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

// server gives other processes the locks of a memlock engine. Each call is a connection, on which a
// client sends a lease and gets a grant. A grant without a token is a refusal.
type server struct {
	engine *memlock.Engine

	mu     sync.Mutex // guards tokens
	tokens []int64    // those of the engine, which are long; clients get their places, from 1 on
}

// serve starts a server on a socket. Its calls end with ctx, or with their clients. After that, stop
// ends the server.
func serve(ctx context.Context, path string) (stop func(), err error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &server{engine: memlock.New(nil)}
	var running sync.WaitGroup
	running.Go(func() { // ends when the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				var lease driver.Lease
				if json.NewDecoder(conn).Decode(&lease) == nil {
					_ = json.NewEncoder(conn).Encode(s.answer(ctx, lease)) // a client without its answer lets the lease expire
				}
			})
		}
	})
	return func() {
		_ = listener.Close()
		running.Wait()
	}, nil
}

// answer renews a lease, or acquires the lock if the lease has no token.
func (s *server) answer(ctx context.Context, lease driver.Lease) (grant driver.Grant) {
	if lease.Token != 0 {
		grant.Token = lease.Token
		s.mu.Lock()
		lease.Token = s.tokens[lease.Token-1]
		s.mu.Unlock()
		if s.engine.Renew(ctx, []driver.Lease{lease})[0] != nil {
			grant.Token = 0
		}
		return grant
	}
	grant, err := s.engine.Acquire(ctx, driver.Request{Name: lease.Name, TTL: lease.TTL, Wait: true})
	if err != nil {
		return driver.Grant{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, grant.Token)
	grant.Token = int64(len(s.tokens))
	grant.Floor = grant.Token
	return grant
}

// client is the engine of a worker.
type client struct{}

// Traits returns those of memlock that matter for exclusive locks.
func (client) Traits() driver.Traits {
	return driver.Traits{Engine: "demo", Leased: true, Order: driver.OrderAll}
}

// Acquire waits for a lock. The grant has no time, so its lease is confirmed first.
func (client) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := call(ctx, driver.Lease{Name: req.Name, TTL: req.TTL})
	grant.Sent = time.Time{}
	return grant, err
}

// Renew extends leases.
func (client) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		_, errs[i] = call(ctx, l)
	}
	return errs
}

// Release does nothing: the leases of workers expire.
func (client) Release(context.Context, driver.Lease) error { return nil }

// call sends a lease to the server, and returns its answer.
func call(ctx context.Context, lease driver.Lease) (grant driver.Grant, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		err = errors.Join(json.NewEncoder(conn).Encode(lease), json.NewDecoder(conn).Decode(&grant))
	}
	switch {
	case err != nil:
		return grant, fmt.Errorf("%w: %w", driver.ErrUnavailable, errors.Join(err, ctx.Err()))
	case grant.Token == 0:
		return grant, driver.ErrNotHeld
	}
	return grant, nil
}
