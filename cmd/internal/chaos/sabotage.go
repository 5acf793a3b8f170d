//go:build unix

package chaos

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/driver"
)

// A sabotage is a wrong engine, made of a right one. A run must find what is wrong with it.
type sabotage struct {
	what    string // is wrong
	wrap    func(driver.Engine) driver.Engine
	faults  []string // that show it soonest
	orderly bool     // it shows in what is left when all workers have ended in order
}

var sabotages = map[string]sabotage{
	"late-grant":   {"uses a grant that arrives after its lease has ended", func(e driver.Engine) driver.Engine { return &lateGrant{Engine: e} }, []string{freeze, delay}, false},
	"lost-release": {"does not release", func(e driver.Engine) driver.Engine { return lostRelease{e} }, []string{twice}, true},
	"lost-signal":  {"reports no loss, and every renewal as a success", func(e driver.Engine) driver.Engine { return lostSignal{e} }, []string{drop}, false},
	"margin":       {"believes in a lease twice as long as it is", func(e driver.Engine) driver.Engine { return margin{e} }, []string{freeze, drop, kill}, false},
	"min-hold":     {"ends a minimum hold with the release", func(e driver.Engine) driver.Engine { return minHold{e} }, []string{freeze}, false},
	"owner-check":  {"releases whatever its process has under a name, a second time after the first", func(e driver.Engine) driver.Engine { return &ownerCheck{Engine: e} }, []string{freeze, cut}, false},
	"token-order":  {"gives out an old token now and then", func(e driver.Engine) driver.Engine { return &tokenOrder{Engine: e} }, []string{kill, cut}, false},
	"guard":        {"lets the guarded counter accept every token", func(e driver.Engine) driver.Engine { return e }, []string{freeze, pause}, false},
}

// Sabotages returns the names of the wrong engines, and what is wrong with each.
func Sabotages() (names []string, what map[string]string) {
	what = map[string]string{}
	for name, s := range sabotages {
		what[name] = s.what
	}
	return slices.Sorted(maps.Keys(sabotages)), what
}

// Shows reports whether the sabotage can be seen on the engine. Locks on files have no leases, which
// most sabotages are about.
func (c Config) Shows() bool {
	files := c.Engine == "files" || c.Own != nil && c.Own.Dead == sandbox.DeadNothing
	return !files || c.Sabotage == "" || slices.Contains([]string{"lost-release", "min-hold", "owner-check", "token-order"}, c.Sabotage)
}

// sabotaged returns the engine, wrong as a sabotage says. Without one it is right.
func sabotaged(e driver.Engine, name string) driver.Engine {
	if s, ok := sabotages[name]; ok {
		return s.wrap(e)
	}
	return e
}

// lateGrant gets every tenth grant late, and counts its lease from then.
type lateGrant struct {
	driver.Engine
	turns atomic.Int64
}

func (l *lateGrant) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := l.Engine.Acquire(ctx, req)
	if err == nil && l.turns.Add(1)%10 == 0 {
		time.Sleep(req.TTL * 11 / 10)
		g.Sent, g.TTL = time.Now(), req.TTL
	}
	return g, err
}

// margin believes in a lease twice as long as the one it has.
type margin struct{ driver.Engine }

func (d margin) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL /= 2
	g, err := d.Engine.Acquire(ctx, req)
	g.TTL *= 2
	return g, err
}

func (d margin) Renew(ctx context.Context, leases []driver.Lease) []error {
	half := slices.Clone(leases)
	for i := range half {
		half[i].TTL /= 2
	}
	return d.Engine.Renew(ctx, half)
}

func (d margin) Release(ctx context.Context, l driver.Lease) error {
	l.TTL /= 2
	return d.Engine.Release(ctx, l)
}

// lostSignal reports no loss, and takes every renewal for a good one.
type lostSignal struct{ driver.Engine }

func (d lostSignal) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.OnLost = nil
	return d.Engine.Acquire(ctx, req)
}

func (d lostSignal) Renew(ctx context.Context, leases []driver.Lease) []error {
	_ = d.Engine.Renew(ctx, leases)
	return make([]error, len(leases))
}

// minHold lets others in before a minimum hold is over.
type minHold struct{ driver.Engine }

func (e minHold) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.MinHold = 0
	return e.Engine.Acquire(ctx, req)
}

// lostRelease leaves the end of a released lock to its lease.
type lostRelease struct{ driver.Engine }

func (l lostRelease) Release(context.Context, driver.Lease) error { return nil }

// tokenOrder gives out the token of the acquisition before, now and then.
type tokenOrder struct {
	driver.Engine
	last  sync.Map // the right token of each name
	turns atomic.Int64
}

func (s *tokenOrder) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := s.Engine.Acquire(ctx, req)
	if err != nil {
		return g, err
	}
	if before, ok := s.last.Swap(req.Name, g.Token); ok && s.turns.Add(1)%10 == 0 {
		g.Token = before.(int64)
	}
	return g, nil
}

// ownerCheck releases whatever this process has under a name, and once more a little
// later, as one does that has had no answer.
type ownerCheck struct {
	driver.Engine
	last sync.Map // the driver.Lease of each name
}

func (b *ownerCheck) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := b.Engine.Acquire(ctx, req)
	if err == nil {
		b.last.Store(req.Name, driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL})
	}
	return g, err
}

func (b *ownerCheck) Release(ctx context.Context, l driver.Lease) error {
	err := b.Engine.Release(ctx, l)
	time.AfterFunc(3*time.Millisecond, func() {
		if last, _ := b.last.Load(l.Name); last.(driver.Lease).Owner != l.Owner {
			_ = b.Engine.Release(context.Background(), last.(driver.Lease))
		}
	})
	return err
}
