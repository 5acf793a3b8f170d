package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/retry"
)

// attempt is one acquisition of one name in progress. It is used by one goroutine.
type attempt struct {
	*Locker
	request driver.Request
	adopts  *Lease // the acquisition to adopt; nil to acquire the name
	report  *report
	maxHold time.Duration // the maximum hold, counted from the grant; 0 means none
}

// run acquires the lock and reports the success. If a callback panics, run releases the lock.
func (a *attempt) run(ctx context.Context) (*Lock, error) {
	traced := a.report.within(ctx)
	a.request.Trace = traceFrom(traced)
	a.request.OnWait = a.report.waiting(a.opts.OnWait)
	lock, err := a.ask(traced, ctx)
	if err != nil {
		return nil, err
	}
	done := false
	defer undoUnless(&done, func() { _ = lock.Release() })
	a.report.end(lock, nil)
	lock.announce()
	done = true
	return lock, nil
}

// ask calls the engine until a grant is usable or the wait is over. The context of the lock is
// derived from parent.
func (a *attempt) ask(ctx, parent context.Context) (*Lock, error) {
	req := a.request
	a.renewer.acquiring.Add(1)
	defer a.renewer.acquiring.Add(-1)
	limit := a.opts.Wait
	if !req.Wait {
		limit = req.TTL // a non-blocking attempt that takes longer than the TTL is of no use
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var last driver.Waited
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		lock := newLock(a.Locker, parent, req)
		req.OnLost = lock.onEngineLoss
		// Read before the engine records the time of its request: if the machine was suspended in
		// between, the request looks older than it is, never younger.
		before := clock.Now()
		grant, err := a.call(ctx, req)
		if err != nil && (req.Wait || !errors.Is(err, ErrHeld)) {
			err = last.Ended(ctx, err)
		}
		if err != nil && !over(parent) && (!req.Wait || ctx.Err() == nil) {
			err = ownLimit(err)
		}
		if err != nil {
			return nil, driver.OneLine(err)
		}
		switch err = lock.startHold(ctx, grant, before, a.maxHold); {
		case err == nil:
			return lock, nil
		case !over(parent) && (!req.Wait || final(err)):
			return nil, ownLimit(err)
		case !req.Wait, final(err):
			return nil, err
		}
		last.Unavailable(ctx, err)
		if !pause.Wait(ctx) {
			return nil, last.Ended(ctx, nil)
		}
	}
}

// over reports whether ctx has ended, or has reached its deadline and will end at once.
func over(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(at)
}

// limited is an error in which a limit of the library's or the engine's own ended a call. It is not
// the error of a context: after that a caller believes that its own context has ended.
type limited struct{ error }

func ownLimit(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return limited{err}
	}
	return err
}

// Is hides the errors of contexts.
func (l limited) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(l.error, target)
}

// As is errors.As on the hidden error.
func (l limited) As(target any) bool { return errors.As(l.error, target) }

// call calls the engine once.
func (a *attempt) call(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if a.adopts == nil {
		return a.engine.Acquire(ctx, req)
	}
	return a.engine.(driver.Adopter).Adopt(ctx, *a.adopts, req) // as Locker.Adopt has found
}

// startHold begins the hold of a granted lock. A grant that is too old is confirmed by a renewal
// first. before was read before the request was sent. maxHold is that of Options. ctx bounds
// the confirmation.
func (l *Lock) startHold(ctx context.Context, grant driver.Grant, before hold.Instant, maxHold time.Duration) (err error) {
	done := false
	defer undoUnless(&done, func() { _ = l.releaseEngine() })
	h, now := l.granted(grant, clock.At(grant.Sent, before.Boot-before.Mono)), clock.Now()
	if grant.Sent.IsZero() && h.Terms().Leased || !h.Fresh(now) {
		h, err = l.confirm(ctx)
		now = clock.Now()
	}
	if err == nil {
		l.begin(h, maxHold, now)
	}
	done = true
	return err
}

// granted stores what the engine granted and returns the hold that results from it.
func (l *Lock) granted(g driver.Grant, sent hold.Instant) hold.Hold {
	l.lease.Owner, l.lease.Token, l.floor = g.Owner, g.Token, g.Floor
	terms := l.hold.Terms()
	return hold.New(terms, sent, min(cmp.Or(g.TTL, terms.TTL), terms.TTL))
}

// confirm renews a grant that is too old or of unknown age before the caller relies on it: the
// engine's answer may have been delivered late, with its lease already running.
func (l *Lock) confirm(caller context.Context) (h hold.Hold, err error) {
	ctx, cancel := context.WithTimeout(caller, l.lease.TTL/6)
	defer cancel()
	sent := clock.Now()
	switch err = renewOne(ctx, l.locker.renewer.engine, l.lease); {
	case err == nil:
		return hold.New(l.hold.Terms(), sent, l.lease.TTL), nil
	case errors.Is(err, ErrNotHeld): // nothing to release
		return h, fmt.Errorf("%w: the lease of %q expired before it could be used", errUnconfirmed, l.lease.Name)
	}
	// The outcome is unknown: release the lock rather than leave one that no caller knows of.
	l.locker.renewer.giveBack(caller, l.releaseEngine)
	if final(err) {
		return h, err
	}
	return h, fmt.Errorf("%w: %q: %w", errUnconfirmed, l.lease.Name, err)
}

// errUnconfirmed means that a grant expired before it could be used, or that its confirmation
// failed and it was released. It does not mean that another process holds the name.
var errUnconfirmed = fmt.Errorf("%w: a grant could not be confirmed", ErrUnavailable)

func renewOne(ctx context.Context, engine driver.Engine, lease driver.Lease) error {
	if errs := engine.Renew(ctx, []driver.Lease{lease}); len(errs) == 1 {
		return errs[0]
	}
	return errShortAnswer
}

// report passes one acquisition to the tracer and the logger: its start, and its end once. A nil
// report does nothing.
type report struct {
	cfg   *Config
	asked context.Context // the context given to AcquireStart
	ctx   context.Context // the context that AcquireStart returned
	begun time.Time
	data  TraceAcquireEnd
	over  bool

	joined time.Time // when the request joined the queue; zero if it did not
}

// newReport calls AcquireStart. The caller must call end.
func (l *Locker) newReport(ctx context.Context, req driver.Request, adopts bool) *report {
	if untraced(ctx, &l.cfg) {
		return nil
	}
	lock := TraceLock{Name: req.Name, Mode: req.Mode, Kind: l.kind(), Engine: l.traits.Engine}
	r := &report{cfg: &l.cfg, asked: ctx, begun: time.Now(), data: TraceAcquireEnd{TraceLock: lock, Adopt: adopts}}
	r.ctx = start(ctx, l.cfg.Tracer.AcquireStart, TraceAcquireStart{Name: lock.Name, Mode: lock.Mode, Wait: req.Wait, Adopt: adopts, Kind: lock.Kind, Engine: lock.Engine})
	return r
}

// untraced reports whether neither the tracer nor the logger wants acquisitions.
func untraced(ctx context.Context, cfg *Config) bool {
	t := cfg.Tracer
	return t.AcquireStart == nil && t.AcquireWait == nil && t.AcquireEnd == nil && !cfg.Logger.Enabled(ctx, slog.LevelDebug)
}

// within returns the context that AcquireStart returned. If ctx was derived from the original
// context in the meantime, the result ends with ctx and has the values of the traced one.
func (r *report) within(ctx context.Context) context.Context {
	switch {
	case r == nil:
		return ctx
	case same(ctx, r.asked):
		return r.ctx
	}
	return tracedContext{ctx, r.ctx}
}

// waiting returns a callback that calls AcquireWait once and then onWait, which may be nil.
func (r *report) waiting(onWait func(driver.WaitInfo)) func(driver.WaitInfo) {
	if r == nil {
		return onWait
	}
	return func(info driver.WaitInfo) {
		if r.data.Position == 0 {
			r.data.Position = info.Position
		}
		if info.Held != nil {
			r.data.Held = info.Held
		}
		if r.joined.IsZero() {
			r.joined = time.Now()
			end(r.ctx, r.cfg.Tracer.AcquireWait, TraceAcquireWait{
				Name: r.data.Name, Mode: r.data.Mode, Position: info.Position, Held: info.Held, Kind: r.data.Kind, Engine: r.data.Engine,
			})
		}
		if onWait != nil {
			onWait(info)
		}
	}
}

// end reports the end of the acquisition. Only the first call has an effect.
func (r *report) end(lock *Lock, err error) {
	if r == nil || r.over {
		return
	}
	r.over = true
	r.data.Waited, r.data.Err = time.Since(r.begun), err
	if !r.joined.IsZero() {
		r.data.Queued = max(1, time.Since(r.joined)) // not 0, even with a coarse clock
	}
	if held, ok := errors.AsType[*HeldError](err); ok {
		r.data.Held = held
	}
	if err == nil {
		r.data.Token = lock.Token()
	}
	end(r.ctx, r.cfg.Tracer.AcquireEnd, r.data)
	if r.cfg.Logger.Enabled(r.ctx, slog.LevelDebug) { // spares the allocation of the arguments
		r.cfg.Logger.DebugContext(r.ctx, "acquire", "name", r.data.Name, "mode", r.data.Mode.String(),
			"waited", r.data.Waited, "token", r.data.Token, "error", err)
	}
}
