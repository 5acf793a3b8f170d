package fencelock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// Locker makes locks on one engine and keeps them renewed. It is safe for
// concurrent use, needs no closing, and runs no goroutine except to renew. Make
// one per engine and share it.
type Locker struct {
	engine  driver.Engine
	traits  driver.Traits
	cfg     Config
	opts    Options         // whose TTL is not zero
	self    driver.Identity // this process, for people who ask who holds a lock
	renewer *renewer
}

// New returns a Locker on engine. It does no I/O; cfg may be nil.
func New(engine Engine, cfg *Config) *Locker {
	full := cfg.withDefaults()
	return &Locker{
		engine:  engine,
		traits:  engine.Traits(),
		cfg:     full,
		opts:    Options{TTL: defaultTTL},
		self:    driver.Identity{Host: hostname(), PID: os.Getpid()},
		renewer: newRenewer(engine, full),
	}
}

// withDefaults returns c with its zero fields filled in; c may be nil.
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

// hostname is asked for once: it costs system calls, and every request tells it.
var hostname = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
})

// Options returns what l asks for.
func (l *Locker) Options() Options { return l.opts }

// With returns a Locker on the same engine and the same keep-alive, for acquisitions
// with the options o. A zero field of o leaves what l has; see [Locker.WithOnly].
//
//	patient := locks.With(fencelock.Options{Wait: time.Minute})
//	seats := patient.With(fencelock.Options{Shared: true, Limit: 3}) // waits a minute too
func (l *Locker) With(o Options) *Locker { return l.WithOnly(o.over(l.opts)) }

// WithOnly is With for code that says everything: nothing is kept of the options that l
// has, and a zero field of o means the default. Code that is
// given a Locker and takes an option back begins with those it has:
//
//	o := locks.Options()
//	o.Wait = 0
//	patient := locks.WithOnly(o)
func (l *Locker) WithOnly(o Options) *Locker {
	out := *l
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	out.opts, out.self.Note = o, o.Note
	return &out
}

// Do runs fn while holding name. It waits for its turn first, no longer than
// Options.Wait and ctx allow.
//
// The context given to fn is ctx with the fencing token ([TokenFrom]). If the
// lock is lost it ends with a cause that is ErrLost. The lock is renewed until
// fn has returned, even after ctx has ended, and is then released.
//
// Do returns fn's error; if the lock was lost while fn ran, the *LostError
// joined with it, even when fn returned nil. If the lock was not acquired, fn
// does not run, and the error is one of the package's. A release that fails is
// logged, not returned: the work was done under the lock, which ends by itself.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return l.do(ctx, name, true, fn)
}

func (l *Locker) do(ctx context.Context, name string, wait bool, fn func(ctx context.Context) error) error {
	lock, err := l.acquire(ctx, name, wait)
	if err != nil {
		return err
	}
	defer lock.Release() // for a panic in fn; otherwise the second, and harmless
	err = fn(lock.ContextWith(under(ctx, lock)))
	released := lock.Release()
	if lost := lock.lost(); lost != nil {
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

// under returns ctx with the values of the context that HoldStart made of it.
func under(ctx context.Context, l *Lock) context.Context {
	if same(l.parent, ctx) {
		return ctx
	}
	return tracedContext{ctx, l.parent}
}

// Acquire waits until it holds name, no longer than Options.Wait and ctx allow,
// and returns the lock, which the caller must Release. ctx bounds the wait and
// never the hold; the lock's context keeps its values only. A wait that ends
// without a lock returns an error that is the context's error, and besides ErrHeld if
// the engine has said that the name is held and was not found out of reach since, or
// else ErrUnavailable. If ctx has ended already, its error is all that is returned.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryAcquire is Acquire without waiting: if name is held, or others wait for it,
// it returns a *HeldError at once.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, false)
}

// TryDo is Do without waiting: if name is held, or others wait for it, it returns a
// *HeldError at once and fn does not run.
func (l *Locker) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return l.do(ctx, name, false, fn)
}

// acquire gets a lock, and tells the tracer and the logger.
func (l *Locker) acquire(ctx context.Context, name string, wait bool) (*Lock, error) {
	if err := l.cfg.check(l.opts, l.traits.Leased); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req := l.request(ctx, name, wait)
	a := &attempt{Locker: l, request: req, report: newReport(ctx, &l.cfg, req)}
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
	if l.opts.Shared {
		req.Mode = driver.Shared
	}
	if note, ok := ctx.Value(noteKey{}).(string); ok {
		req.Note = note
	}
	return req
}
