package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(addr string) driver.Engine{
		"toy": func(addr string) driver.Engine { return remoteToy(addr) },
	})
	os.Exit(m.Run())
}

// toyServer serves a toy to other processes.
type toyServer struct{ toy *toy }

// ToyAnswer is a grant, or who is in the way. It is exported for net/rpc.
type ToyAnswer struct {
	Grant driver.Grant
	Held  *driver.HeldError
}

func (s toyServer) Try(req driver.Request, a *ToyAnswer) error {
	a.Grant, a.Held, _ = s.toy.try(req)
	return nil
}

func (s toyServer) Renew(leases []driver.Lease, held *[]bool) error {
	for _, err := range s.toy.Renew(context.Background(), leases) {
		*held = append(*held, err == nil)
	}
	return nil
}

func (s toyServer) Release(l driver.Lease, held *bool) error {
	*held = s.toy.Release(context.Background(), l) == nil
	return nil
}

// serveToy serves a toy on a port of 127.0.0.1 until the end of the test.
func serveToy(t testing.TB, toy *toy) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := rpc.NewServer()
	if err := s.RegisterName("Toy", toyServer{toy}); err != nil {
		t.Fatal(err)
	}
	go func() { // ends when ln is closed
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.ServeConn(conn) // ends with the connection
		}
	}()
	return ln.Addr().String()
}

// remoteToy is an engine that asks the toy at an address.
type remoteToy string

func (e remoteToy) Traits() driver.Traits { return (*toy)(nil).Traits() }

// call asks once. What it has sent when ctx ends may be carried out.
func (e remoteToy) call(ctx context.Context, method string, args, reply any) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", string(e))
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	defer conn.Close()
	c := rpc.NewClient(conn).Go(method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
		err = c.Error
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

func (e remoteToy) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := errors.Join(req.Check(e.Traits()), ctx.Err()); err != nil {
		return driver.Grant{}, err
	}
	var heard driver.Waited
	told := req.OnWait == nil
	for {
		var a ToyAnswer
		sent := time.Now()
		err := e.call(ctx, "Toy.Try", driver.Request{Name: req.Name, Mode: req.Mode, TTL: req.TTL, MinHold: req.MinHold, Identity: req.Identity}, &a)
		switch {
		case ctx.Err() != nil:
			return driver.Grant{}, heard.Ended(ctx, err)
		case err != nil:
			heard.Unavailable(ctx, err)
		case a.Held == nil:
			a.Grant.Sent = sent
			return a.Grant, nil
		case !req.Wait:
			return driver.Grant{}, a.Held
		default:
			heard.Held(a.Held)
			if !told {
				told = true
				req.OnWait(driver.WaitInfo{Held: a.Held})
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return driver.Grant{}, heard.Ended(ctx, nil)
		}
	}
}

func (e remoteToy) Renew(ctx context.Context, leases []driver.Lease) []error {
	var held []bool
	err := e.call(ctx, "Toy.Renew", leases, &held)
	errs := make([]error, len(leases))
	for i := range errs {
		if errs[i] = err; err == nil && !held[i] {
			errs[i] = driver.ErrNotHeld
		}
	}
	return errs
}

func (e remoteToy) Release(ctx context.Context, l driver.Lease) error {
	var held bool
	err := e.call(ctx, "Toy.Release", l, &held)
	if err == nil && !held {
		return driver.ErrNotHeld
	}
	return err
}

// remoteWorld is a toy that serves processes, behind a proxy.
type remoteWorld struct{ *proc.Proxy }

func (w remoteWorld) Client(t testing.TB) drivertest.Client { return proc.Start(t, "toy", w.Addr()) }
func (w remoteWorld) Restart(testing.TB)                    {}

// TestFaultsInProcesses: an engine on a server meets real faults, with nothing but package
// proc: a process that is killed, and a server that falls silent. With FENCELOCK_SLOW set it
// takes the whole exam, and processes are frozen too.
func TestFaultsInProcesses(t *testing.T) {
	t.Parallel()
	e := drivertest.Suite{TTL: time.Second, World: func(t testing.TB) drivertest.World {
		return remoteWorld{proc.NewProxy(t, serveToy(t, newToy()))}
	}}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		drivertest.Run(t, e)
		return
	}
	for _, c := range drivertest.Cases() {
		if slices.Contains([]string{"expiry", "unreachable", "outage"}, c.Name) {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, e)
			})
		}
	}
}

// What an engine in another process has not is not asked for.
func TestProcessesHaveWhatTheirEngineHas(t *testing.T) {
	t.Parallel()
	w := remoteWorld{proc.NewProxy(t, serveToy(t, newToy()))}
	e := drivertest.Suite{World: func(testing.TB) drivertest.World { return w }}
	for _, c := range drivertest.Cases() {
		if slices.Contains([]string{"list", "break", "break-owner", "all-or-none", "record-clock"}, c.Name) {
			if failures, skipped := drivertest.Collect(t, func(t testing.TB) { c.Run(t, e) }); skipped == "" || len(failures) > 0 {
				t.Errorf("%s: skipped because %q, failures %q", c.Name, skipped, failures)
			}
		}
	}
}
