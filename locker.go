package fencelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/retry"
)

// Locker makes locks on one engine and keeps them renewed. It is safe for
// concurrent use, needs no closing, and runs no goroutine except to renew. Make
// one per engine and share it.
type Locker struct {
	engine  driver.Engine
	traits  driver.Traits
	cfg     Config
	opts    Options // with the Config's values in its zero fields
	self    driver.Identity
	renewer *renewer
}

// New returns a Locker on engine. It does no I/O; cfg may be nil.
func New(engine driver.Engine, cfg *Config) *Locker {
	full := cfg.withDefaults()
	return &Locker{
		engine:  engine,
		traits:  engine.Traits(),
		cfg:     full,
		opts:    Options{}.or(full),
		self:    self(full.Note),
		renewer: newRenewer(engine, full),
	}
}

// Options returns what l asks for, the Config's TTL, grace and note included. Code
// that is given a Locker and wants to change one option begins with these.
func (l *Locker) Options() Options { return l.opts }

// With returns a Locker on the same engine and the same keep-alive, for acquisitions
// with the options o. A zero field means what the Config says; nothing is kept of the
// options that l has.
//
//	seats := locks.With(fencelock.Options{Shared: true, Limit: 3})
func (l *Locker) With(o Options) *Locker {
	out := *l
	out.opts = o.or(l.cfg)
	out.self.Note = out.opts.Note
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
	err = fn(lock.ContextWith(lock.under(ctx)))
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
	if err := l.check(l.opts); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req := l.request(ctx, name, wait)
	r := l.report(ctx, req)
	lock, err := l.pursue(ctx, req, r)
	if err != nil {
		r.end(nil, err)
	}
	return lock, err
}

// pursue gets a lock, and reports a success. If a callback panics, the lock is given
// back.
func (l *Locker) pursue(ctx context.Context, req driver.Request, r *report) (*Lock, error) {
	req.OnWait, req.Follow = r.waiting(l.opts.OnWait), l.opts.OnWait != nil
	lock, err := l.attempt(r.within(ctx), ctx, req)
	if err != nil {
		return nil, err
	}
	done := false
	defer unless(&done, func() { _ = lock.Release() })
	r.end(lock, nil)
	lock.announce()
	done = true
	return lock, nil
}

// unless undoes, in a deferred call, what was not done: a callback panicked, or ended
// its goroutine.
func unless(done *bool, undo func()) {
	if !*done {
		undo()
	}
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

// attempt asks the engine until a grant is confirmed or the wait is over. The
// lock's context is made from parent.
func (l *Locker) attempt(ctx, parent context.Context, req driver.Request) (*Lock, error) {
	l.renewer.acquiring.Add(1)
	defer l.renewer.acquiring.Add(-1)
	limit := l.opts.Wait
	if !req.Wait {
		limit = req.TTL // an engine that cannot answer a try in that time is no use
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var heard driver.Waited
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		lock := newLock(l, parent, req)
		req.OnLost = lock.onEngineLoss
		// Read before the engine stamps its request: less suspended time makes
		// the stamp older, never younger.
		before := instant()
		grant, err := l.engine.Acquire(ctx, req)
		if err != nil && (req.Wait || !errors.Is(err, ErrHeld)) {
			err = heard.Ended(ctx, err)
		}
		if err != nil {
			return nil, driver.OneLine(err)
		}
		switch err = l.startHold(ctx, lock, grant, before); {
		case err == nil:
			return lock, nil
		case !req.Wait, final(err):
			return nil, err
		}
		heard.Unavailable(ctx, err)
		if !pause.Wait(ctx) {
			return nil, heard.Ended(ctx, nil)
		}
	}
}

// final reports whether trying again would not help.
func final(err error) bool {
	return errors.Is(err, ErrConfig) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported)
}

// startHold begins the hold of a granted lock, once it is confirmed if it must be.
// before was read before the request was sent. ctx bounds the confirmation.
func (l *Locker) startHold(ctx context.Context, lock *Lock, grant driver.Grant, before hold.Instant) (err error) {
	done := false
	defer unless(&done, func() { _ = lock.releaseEngine() })
	h, now := lock.granted(grant, instantAt(grant.Sent, before.Boot-before.Mono)), instant()
	if grant.Sent.IsZero() && l.traits.Leased || !h.Fresh(now) {
		h, err = l.confirm(ctx, lock)
		now = instant()
	}
	if err == nil {
		lock.begin(h, now)
	}
	done = true
	return err
}

// confirm renews a grant that is too old, or of unknown age, before anybody
// relies on it: the message may have lain unread while its lease ran.
func (l *Locker) confirm(ctx context.Context, lock *Lock) (h hold.Hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, lock.lease.TTL/6)
	defer cancel()
	sent := instant()
	switch err = renewOne(ctx, l.engine, lock.lease); {
	case err == nil:
		return hold.New(lock.terms, sent, lock.terms.TTL), nil
	case errors.Is(err, ErrNotHeld): // nothing is left to give back
		return h, fmt.Errorf("%w: that of %q has lapsed", errUnconfirmed, lock.lease.Name)
	}
	// Unknown: whatever stands is given back rather than held unseen.
	_ = lock.releaseEngine()
	if final(err) {
		return h, err
	}
	return h, fmt.Errorf("%w: %q: %w", errUnconfirmed, lock.lease.Name, err)
}

// errUnconfirmed: a grant has lapsed, or nobody knows whether it stands and it was
// given back. The engine has not said that somebody holds the name.
var errUnconfirmed = fmt.Errorf("%w: a grant could not be confirmed", ErrUnavailable)

func renewOne(ctx context.Context, engine driver.Engine, lease driver.Lease) error {
	if errs := engine.Renew(ctx, []driver.Lease{lease}); len(errs) == 1 {
		return errs[0]
	}
	return errShortAnswer
}

var errShortAnswer = errors.New("the engine did not answer for every lease")
