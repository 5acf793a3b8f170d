package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

// address is one that can be made to lead to another server, as a stale name or a
// pod's address that is used again does.
type address struct {
	mu   sync.Mutex // guards to, open
	to   string
	open []net.Conn
}

func (a *address) dial(ctx context.Context, _ string, d *net.Dialer) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := d.DialContext(ctx, "tcp", a.to)
	if err == nil {
		a.open = append(a.open, c)
	}
	return c, err
}

func (a *address) lead(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = to
	for _, c := range a.open {
		_ = c.Close()
	}
	a.open = nil
}

// conn is a connection to where the address leads.
func (a *address) conn(t *testing.T) redisconn.Conn {
	lazy := redisconn.NewLazy(func() (rueidis.Client, error) {
		return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{a.to}, DisableCache: true, ForceSingleClient: true,
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return a.dial(ctx, addr, d)
			}})
	})
	t.Cleanup(lazy.Close)
	return lazy
}

// astray opens an engine whose last node is behind an address.
func astray(t *testing.T, w world, cfg redlock.Config) (*redlock.Engine, *address) {
	t.Helper()
	a := &address{to: w[len(w)-1].Addr()}
	e := openThrough(t, w.addrs(), cfg, func(i int, node redisconn.Conn) redisconn.Conn {
		if i < len(w)-1 {
			return node
		}
		return a.conn(t)
	})
	return e, a
}

// unreachable is a connection that reaches nobody until it is open.
type unreachable struct {
	redisconn.Conn
	open atomic.Bool
}

var errUnreachable = errors.New("connection refused")

func (u *unreachable) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	if !u.open.Load() {
		return redisconn.Failures(len(calls), errUnreachable)
	}
	return u.Conn.Eval(ctx, calls)
}

func (u *unreachable) Each(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	if !u.open.Load() {
		return nil, errUnreachable
	}
	return u.Conn.Each(ctx, args...)
}

// TestAddressThatWasWrongAtFirst: the address of a node led to another node's server, which
// its own address did not reach. When both lead to servers of their own, both vote.
func TestAddressThatWasWrongAtFirst(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	var second *unreachable
	third := &address{to: w[1].Addr()}
	e := openThrough(t, w.addrs(), redlock.Config{RetryTimeout: 2 * time.Second}, func(i int, node redisconn.Conn) redisconn.Conn {
		switch i {
		case 1:
			second = &unreachable{Conn: node}
			return second
		case 2:
			return third.conn(t)
		}
		return node
	})
	warmUp(t, e)
	third.lead(w[2].Addr())
	warmUp(t, e)
	second.open.Store(true)
	w[0].Kill(t)
	eventually(t, "a lock of the second and the third", func() bool { _, err := try(e, "x", long); return err == nil })
}

// TestOneServerHasOneVote: an address comes to lead to another node's server. That
// one does not vote twice, neither for a lock nor for a renewal.
func TestOneServerHasOneVote(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: an address leads to another node's server", verdict.Safe)
	for what, cfg := range map[string]redlock.Config{"quarantine": {}, "no quarantine": {NoQuarantine: true}} {
		t.Run(what, func(t *testing.T) {
			w := startNodes(t, 3)
			if cfg.NoQuarantine {
				for _, r := range w {
					r.Do(t, "FLUSHALL")
				}
			}
			cfg.RetryTimeout = 2 * time.Second
			e, third := astray(t, w, cfg)
			warmUp(t, e)
			_, l := retryAcquire(t, e, "held", long)
			third.lead(w[1].Addr())
			w[0].Kill(t)
			w[2].Do(t, "FLUSHALL")
			eventually(t, "an error that says that two are one", func() bool { // a slow one may not have answered
				g, err := try(e, "x", long)
				if err == nil {
					t.Fatalf("one server of three made a majority: %+v", g)
				}
				return strings.Contains(err.Error(), "are the same server")
			})
			if errs := e.Renew(context.Background(), []driver.Lease{l}); errs[0] == nil {
				t.Error("one server of three renewed a lock")
			}
			third.lead(w[2].Addr())
			if cfg.NoQuarantine {
				eventually(t, "the third node is back", func() bool { _, err := try(e, "y", long); return err == nil })
			}
		})
	}
}

// TestAMinorityAstray: while a majority answers at its own addresses, locks go on.
func TestAMinorityAstray(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e, third := astray(t, w, redlock.Config{})
	warmUp(t, e)
	third.lead(w[1].Addr())
	for range 5 {
		eventually(t, "a lock of the two that are left", func() bool { // both must have received the last release
			g, err := try(e, "x", long)
			if err != nil {
				return false
			}
			// What goes astray may free the lock at the other's server first.
			if err := e.Release(t.Context(), leaseOf("x", g, long)); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
			return true
		})
	}
	if _, err := try(open(t, []string{w[0].Addr(), w[1].Addr(), w[1].Addr()}, redlock.Config{Nodes: []string{"a", "b", "c"}}), "x", time.Second); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a set that never was one: got %v, want ErrConfig", err)
	}
}

// TestSwappedAddresses: the addresses of two live servers come to lead to one another's,
// as after pods have moved. Both go on to vote, and locks that are held stay held.
func TestSwappedAddresses(t *testing.T) {
	t.Parallel()
	for what, cfg := range map[string]redlock.Config{"quarantine": {}, "no quarantine": {NoQuarantine: true}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, 3)
			moved := []*address{{to: w[1].Addr()}, {to: w[2].Addr()}}
			e := openThrough(t, w.addrs(), cfg, func(i int, node redisconn.Conn) redisconn.Conn {
				if i == 0 {
					return node
				}
				return moved[i-1].conn(t)
			})
			warmUp(t, e)
			_, l := retryAcquire(t, e, "held", long)
			for _, r := range w {
				eventually(t, "the lock on every node", func() bool { return r.Do(t, "EXISTS", "lock:held") == "1" })
			}
			moved[0].lead(w[2].Addr())
			moved[1].lead(w[1].Addr())
			renewed := func() bool {
				err := e.Renew(t.Context(), []driver.Lease{l})[0]
				if errors.Is(err, driver.ErrNotHeld) {
					t.Fatal(err)
				}
				return err == nil
			}
			eventually(t, "a renewal", renewed)
			w[0].Kill(t)
			eventually(t, "a renewal by the two that have moved", renewed)
			_, l = retryAcquire(t, e, "another", long)
			release(t, e, l)
		})
	}
}
