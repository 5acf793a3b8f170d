package fencelock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hostname"
)

// Locker acquires locks on one engine and renews them. Create one per engine and share it. It is
// safe for concurrent use and need not be closed. It runs goroutines only while it renews.
type Locker struct {
	engine  driver.Engine
	traits  driver.Traits
	cfg     Config
	opts    Options         // TTL is not zero
	self    driver.Identity // this process, shown as the holder
	renewer *renewer
}

// New returns a Locker on engine. It does no I/O. cfg may be nil. It panics if engine is nil.
func New(engine Engine, cfg *Config) *Locker {
	if engine == nil {
		panic("fencelock: New needs an engine, such as that of goredis.New or pglock.New")
	}
	full := cfg.withDefaults()
	return &Locker{
		engine:  engine,
		traits:  engine.Traits(),
		cfg:     full,
		opts:    Options{TTL: defaultTTL},
		self:    driver.Identity{Host: hostname.Get(), PID: os.Getpid()},
		renewer: newRenewer(engine, full),
	}
}

// withDefaults returns c with its zero fields set to the defaults; c may be nil.
func (c *Config) withDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	out.ReleaseTimeout = cmp.Or(out.ReleaseTimeout, defaultReleaseTimeout)
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Tracer == nil {
		out.Tracer = &Tracer{}
	}
	return out
}

// kind returns what the locks of l are used for.
func (l *Locker) kind() string { return cmp.Or(l.opts.Kind, KindLock) }

// Options returns the options of l's acquisitions.
func (l *Locker) Options() Options { return l.opts }

// Tracer returns the tracer of the Config, for packages that build on locks and report what they do.
// It is never nil, but its hooks may be.
func (l *Locker) Tracer() *Tracer { return l.cfg.Tracer }

// EngineName returns the name of the engine in one word, such as "redis".
func (l *Locker) EngineName() string { return l.traits.Engine }

// With returns a Locker for acquisitions with the options o. It shares the engine and the renewals
// of l. Zero fields of o keep the values of l; to reset a field use [Locker.WithOnly].
//
//	patient := locks.With(fencelock.Options{Wait: time.Minute})
//	seats := patient.With(fencelock.Options{Shared: true, Limit: 3}) // waits a minute too
func (l *Locker) With(o Options) *Locker { return l.WithOnly(o.over(l.opts)) }

// WithOnly is [Locker.With] without the options of l: zero fields of o mean the defaults. To reset
// one option of a Locker, start from its current ones:
//
//	o := locks.Options()
//	o.Wait = 0
//	unbounded := locks.WithOnly(o)
func (l *Locker) WithOnly(o Options) *Locker {
	out := *l
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	out.opts, out.self.Note, out.self.Kind = o, o.Note, o.Kind
	return &out
}

// Do runs fn while it holds name. It waits for the lock, at most as long as Options.Wait and ctx
// allow.
//
// The context given to fn is derived from ctx and has the fencing token ([TokenFrom]). If the lock
// is lost, it ends with a cause that is ErrLost. If it reaches Options.MaxHold, it ends with a cause
// that is ErrMaxHold. Otherwise the lock is renewed until fn returns, even if ctx ends earlier, and
// is then released.
//
// Do returns the error of fn. If the lock was lost or reached its maximum hold while fn ran, Do
// returns the *LostError or *MaxHoldError joined with that error, even if fn returned nil. If Do
// does not get the lock, fn does not run; the errors are those of [Locker.Acquire]. A failed release
// is logged and not returned: fn has finished, and the lock expires by itself.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return l.do(ctx, name, true, fn)
}

func (l *Locker) do(ctx context.Context, name string, wait bool, fn func(ctx context.Context) error) error {
	lock, err := l.acquire(ctx, name, wait)
	if err != nil {
		return err
	}
	defer lock.Release() // for a panic in fn; otherwise a second call, which does nothing
	err = fn(lock.ContextWith(under(ctx, lock)))
	released := lock.Release()
	if lost := lock.failure(); lost != nil {
		return errors.Join(lost, err)
	}
	if errors.Is(released, ErrNotHeld) {
		return errors.Join(&LostError{Name: name, Token: lock.Token(), Deadline: lock.Deadline(), Reason: released}, err)
	}
	if released != nil {
		l.cfg.Logger.WarnContext(lock.values(), "release failed", "name", name, "token", lock.Token(), "error", released)
	}
	return err
}

// under returns ctx with the values of the context that HoldStart returned.
func under(ctx context.Context, l *Lock) context.Context {
	if same(l.parent, ctx) {
		return ctx
	}
	return tracedContext{ctx, l.parent}
}

// Acquire waits until it holds name, at most as long as Options.Wait and ctx allow, and returns the
// lock. The caller must Release it. ctx bounds only the wait: the lock outlives ctx, and the
// context of the lock has its values but not its end.
//
// If Options.Wait or ctx ends the wait, the error wraps that of a context. It also wraps ErrHeld if
// the engine's latest answer was that the name is held, and ErrUnavailable otherwise. If ctx has
// already ended at the call, Acquire returns only the error of ctx. An engine may give up earlier,
// with ErrUnavailable alone.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryAcquire is [Locker.Acquire] without waiting. If name is held, or others are waiting for it,
// TryAcquire returns a *HeldError at once.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, false)
}

// TryDo is [Locker.Do] without waiting. If name is held, or others are waiting for it, TryDo
// returns a *HeldError at once and does not run fn.
func (l *Locker) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return l.do(ctx, name, false, fn)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (*Lock, error) {
	return l.obtain(ctx, l.request(ctx, name, wait), nil)
}

// obtain acquires a lock, or adopts lease unless that is nil. It reports to the tracer and the
// logger.
func (l *Locker) obtain(ctx context.Context, req driver.Request, lease *Lease) (*Lock, error) {
	if err := l.cfg.check(l.opts, l.traits.Leased); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := &attempt{Locker: l, request: req, adopts: lease, report: l.newReport(ctx, req, lease != nil), maxHold: l.opts.MaxHold}
	lock, err := a.run(ctx)
	if err != nil {
		a.report.end(nil, err)
	}
	return lock, err
}

func (l *Locker) request(ctx context.Context, name string, wait bool) driver.Request {
	req := driver.Request{
		Name:     name,
		Limit:    l.opts.Limit,
		Weight:   l.opts.Weight,
		TTL:      l.opts.TTL,
		MinHold:  l.opts.MinHold,
		Wait:     wait,
		Identity: l.self,
	}
	req.MaxHold = l.opts.MaxHold
	if l.opts.Shared {
		req.Mode = driver.Shared
	}
	if note, ok := ctx.Value(noteKey{}).(string); ok && l.opts.Kind != KindElection { // candidates read each other's notes
		req.Note = note
	}
	return req
}
