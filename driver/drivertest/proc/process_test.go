package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

var (
	_ drivertest.Client   = (*proc.Process)(nil)
	_ drivertest.Remote   = (*proc.Process)(nil)
	_ driver.Lister       = (*proc.Process)(nil)
	_ driver.Breaker      = (*proc.Process)(nil)
	_ driver.OwnerBreaker = (*proc.Process)(nil)
	_ driver.Adopter      = (*proc.Process)(nil)
	_ driver.Resizer      = (*proc.Process)(nil)
	_ driver.RecordKeeper = (*proc.Process)(nil)
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{
		"echo":  func(arg string) driver.Engine { return echo(arg) },
		"whole": func(arg string) driver.Engine { return whole{echo(arg)} },
	})
	os.Exit(m.Run())
}

// echo is an engine that grants every try, keeps every waiter, and tells each
// error by name.
type echo string

func (e echo) Traits() driver.Traits { return driver.Traits{Engine: string(e), Limits: true} }

func (e echo) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if !req.Wait {
		req.OnLost(driver.ErrLost)
		return driver.Grant{Owner: req.Name, Token: int64(req.PID)}, nil
	}
	if ctx.Err() != nil {
		return driver.Grant{}, ctx.Err()
	}
	held := &driver.HeldError{Name: req.Name, Owner: "o", Identity: req.Identity}
	req.OnWait(driver.WaitInfo{Position: 3, Held: held, Trouble: req.Check(driver.Traits{})})
	<-ctx.Done()
	if req.Name == "away" {
		return driver.Grant{}, (&driver.Waited{}).Ended(ctx, nil)
	}
	return driver.Grant{}, errors.Join(held, ctx.Err())
}

func (e echo) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	errs[len(errs)-1] = driver.ErrNotHeld
	return errs
}

func (e echo) Release(context.Context, driver.Lease) error { return driver.ErrUnavailable }

// whole is an echo that also resizes.
type whole struct{ echo }

func (w whole) Resize(_ context.Context, name string, limit int) error {
	return fmt.Errorf("%w: %s to %d", driver.ErrInvalid, name, limit)
}

func TestCallsAndErrorsTravel(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "echo", "parrot")
	if got := p.Traits(); got.Engine != "parrot" || !got.Limits {
		t.Errorf("traits: %+v", got)
	}
	lost := make(chan error, 1)
	req := driver.Request{Name: "no\xffrune", Identity: driver.Identity{PID: 7}, OnLost: func(err error) { lost <- err }}
	g, err := p.Acquire(t.Context(), req)
	if err != nil || g.Owner != req.Name || g.Token != 7 {
		t.Errorf("acquire: %+v, %v", g, err)
	}
	if err := <-lost; !errors.Is(err, driver.ErrLost) {
		t.Errorf("lost: %v", err)
	}
	errs := p.Renew(t.Context(), make([]driver.Lease, 3))
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], driver.ErrNotHeld) {
		t.Errorf("renew: %v", errs)
	}
	if err := p.Release(t.Context(), driver.Lease{}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("release: %v", err)
	}
	if p.Has("Lister") || p.Has("Resizer") || p.Has("nonsense") {
		t.Error("an engine with nothing optional has something")
	}
	if _, err := p.List(t.Context(), driver.Query{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("list: %v", err)
	}
	if err := p.Resize(t.Context(), "a", 2); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("resize: %v", err)
	}
}

func TestResizeTravels(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "whole", "parrot")
	if !p.Has("Resizer") || p.Has("Lister") {
		t.Error("what the engine has got lost on the way")
	}
	err := p.Resize(t.Context(), "seats", 7)
	if !errors.Is(err, driver.ErrInvalid) || !strings.HasSuffix(err.Error(), "seats to 7") {
		t.Errorf("resize: %v", err)
	}
}

// a deadline is a context whose deadline comes when the test says so.
type deadline struct {
	context.Context
	done chan struct{}
}

func newDeadline(t *testing.T) *deadline {
	return &deadline{t.Context(), make(chan struct{})}
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestCancelTravels(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "echo", "parrot")
	ctx := newDeadline(t)
	var info driver.WaitInfo
	req := driver.Request{Name: "a", Wait: true, OnWait: func(i driver.WaitInfo) { info = i; close(ctx.done) }}
	_, err := p.Acquire(ctx, req)
	var held *driver.HeldError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Owner != "o" {
		t.Errorf("acquire: %v", err)
	}
	if info.Position != 3 || info.Held == nil || info.Held.Name != "a" || !errors.Is(info.Trouble, driver.ErrInvalid) {
		t.Errorf("waiting: %+v", info)
	}
	req.Name = "away"
	_, err = p.Acquire(ctx, req)
	if err.Error() != "context canceled" || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	ctx = newDeadline(t)
	if _, err = p.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("with an engine that is away: %v", err)
	}
}

func TestPanicsTravel(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "echo", "parrot")
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, err := p.Acquire(t.Context(), driver.Request{Name: "a", Wait: true, OnWait: func(driver.WaitInfo) { panic("boom") }})
		t.Errorf("no panic: %v", err)
	}()
	if err := p.Release(t.Context(), driver.Lease{}); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, proc.ErrGone) {
		t.Errorf("after the panic: %v", err)
	}
}

func TestFrozenBlocksAndKilledFails(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "echo", "parrot")
	p.Freeze(t)
	done := make(chan error, 1)
	go func() { done <- p.Release(context.Background(), driver.Lease{}) }()
	select {
	case err := <-done:
		t.Errorf("a frozen process answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Thaw(t)
	if err := <-done; errors.Is(err, proc.ErrGone) {
		t.Errorf("after the thaw: %v", err)
	}
	p.Kill(t)
	if err := p.Release(context.Background(), driver.Lease{}); !errors.Is(err, proc.ErrGone) {
		t.Errorf("after the kill: %v", err)
	}
}
