package enginetest_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/enginetest"
)

var _ drivertest.Client = (*enginetest.Process)(nil)

func TestMain(m *testing.M) {
	enginetest.Main(map[string]func(string) driver.Engine{
		"echo": func(arg string) driver.Engine { return echo(arg) },
	})
	os.Exit(m.Run())
}

// echo is an engine that grants every try, keeps every waiter, and tells each
// error by name.
type echo string

func (e echo) Traits() driver.Traits { return driver.Traits{Engine: string(e), Limits: true} }

func (e echo) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if !req.Wait {
		req.Lost(driver.ErrLost)
		return driver.Grant{Owner: req.Name, Token: int64(req.PID)}, nil
	}
	held := &driver.HeldError{Name: req.Name, Owner: "o", Identity: req.Identity}
	req.Waiting(driver.WaitInfo{Position: 3, Held: held})
	<-ctx.Done()
	return driver.Grant{}, driver.WaitError(held, ctx.Err())
}

func (e echo) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	errs[len(errs)-1] = driver.ErrNotHeld
	return errs
}

func (e echo) Release(context.Context, driver.Lease) error { return driver.ErrUnavailable }

func TestCallsAndErrorsTravel(t *testing.T) {
	p := enginetest.Start(t, "echo", "parrot")
	if got := p.Traits(); got.Engine != "parrot" || !got.Limits {
		t.Errorf("traits: %+v", got)
	}
	lost := make(chan error, 1)
	req := driver.Request{Name: "no\xffrune", Identity: driver.Identity{PID: 7}, Lost: func(err error) { lost <- err }}
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
	if _, err := p.List(t.Context(), driver.Query{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("list: %v", err)
	}
}

func TestCancelTravels(t *testing.T) {
	p := enginetest.Start(t, "echo", "parrot")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var info driver.WaitInfo
	req := driver.Request{Name: "a", Wait: true, Waiting: func(i driver.WaitInfo) { info = i }}
	_, err := p.Acquire(ctx, req)
	var held *driver.HeldError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Owner != "o" {
		t.Errorf("acquire: %v", err)
	}
	if info.Position != 3 || info.Held == nil || info.Held.Name != "a" {
		t.Errorf("waiting: %+v", info)
	}
}

func TestFrozenBlocksAndKilledFails(t *testing.T) {
	p := enginetest.Start(t, "echo", "parrot")
	p.Freeze(t)
	done := make(chan error, 1)
	go func() { done <- p.Release(context.Background(), driver.Lease{}) }()
	select {
	case err := <-done:
		t.Errorf("a frozen process answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Thaw(t)
	if err := <-done; errors.Is(err, enginetest.ErrGone) {
		t.Errorf("after the thaw: %v", err)
	}
	p.Kill(t)
	if err := p.Release(context.Background(), driver.Lease{}); !errors.Is(err, enginetest.ErrGone) {
		t.Errorf("after the kill: %v", err)
	}
}
