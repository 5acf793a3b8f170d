package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/retry"
)

// The first and the longest pause between two attempts.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Release ends the hold at once and then releases the lock on the engine. It does not depend on the
// caller's context and takes at most Config.ReleaseTimeout. Temporary failures are retried. If the
// lock was lost before, or was released because of Options.MaxHold, Release returns ErrNotHeld, in
// the second case when that release has ended. Further calls do nothing and return nil.
func (l *Lock) Release() error {
	if l.close(phaseReleased) != nil {
		return nil
	}
	l.feed(hold.Event{Kind: hold.Released}, clock.Now())
	phase, failure := l.state()
	switch phase {
	case phaseExpired, phaseReturned:
		<-l.gaveUp // giveUp releases it; the process may end after this call
		return fmt.Errorf("%w: %w", ErrNotHeld, failure)
	case phaseLost:
		_ = l.releaseEngine() // the engine may still hold it
		return fmt.Errorf("%w: %w", ErrNotHeld, failure)
	}
	err := l.releaseEngine()
	l.holdEnd()
	return err
}

// holdEnd calls HoldEnd for a lock that was not lost.
func (l *Lock) holdEnd() {
	l.mu.Lock()
	data := TraceHoldEnd{TraceLock: l.traced(), Held: l.held, Max: l.capped, Detached: l.phase == phaseDetached}
	l.mu.Unlock()
	end(l.values(), l.locker.renewer.cfg.Tracer.HoldEnd, data)
}

// giveUp releases a lock that was held for its maximum and the grace.
func (l *Lock) giveUp() {
	err := func() error {
		defer close(l.gaveUp) // even if a hook ends the goroutine; before HoldEnd, which may call Release
		return l.releaseEngine()
	}()
	logger := l.locker.renewer.cfg.Logger
	logger.WarnContext(l.values(), "maximum hold is over", "name", l.lease.Name, "token", l.lease.Token, "held", l.held)
	if err != nil && !errors.Is(err, ErrNotHeld) {
		logger.WarnContext(l.values(), "release failed", "name", l.lease.Name, "token", l.lease.Token, "error", err) // the lock expires by itself
	}
	l.returned()
}

// releaseWait is how long a caller whose wait has ended still waits for the release of what it
// acquired. A reachable engine answers sooner, so a program that exits right after a failed
// acquisition leaves nothing locked.
const releaseWait = 250 * time.Millisecond

// giveBack releases what was acquired for a caller that does not get it. It returns at the latest
// releaseWait after the end of ctx, while the release continues in the background.
func (r *renewer) giveBack(ctx context.Context, release func() error) {
	ended, left := make(chan any), make(chan struct{})
	go func() { // ends at the release timeout at the latest
		var panicked any // a panic of a hook, passed on to the caller
		defer func() {
			select {
			case ended <- panicked:
			case <-left:
				if panicked != nil {
					panic(panicked)
				}
			}
		}()
		defer func() { panicked = recover() }()
		if err := release(); err != nil && !errors.Is(err, ErrNotHeld) {
			r.cfg.Logger.WarnContext(context.WithoutCancel(ctx), "release failed", "error", err) // the lock expires by itself
		}
	}()
	defer close(left)
	select {
	case p := <-ended:
		rethrow(p)
		return
	case <-ctx.Done():
	}
	longer := releaseWait
	if end, ok := ctx.Deadline(); ok && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		longer += time.Until(end) // an earlier release for this caller may have used part of the time
	}
	timer := time.NewTimer(longer)
	defer timer.Stop()
	select {
	case p := <-ended:
		rethrow(p)
	case <-timer.C:
	}
}

// rethrow re-panics with the panic of another goroutine, if there was one.
func rethrow(p any) {
	if p != nil {
		panic(p)
	}
}

// releaseEngine calls the engine until it answers or the release timeout is over.
func (l *Lock) releaseEngine() error {
	cfg := &l.locker.renewer.cfg
	begun := time.Now()
	limit := deadline.New(l.values(), begun.Add(cfg.ReleaseTimeout))
	defer limit.Stop()
	done := false
	defer undoUnless(&done, func() { _ = release(limit, l.locker.renewer.engine, l.lease) })
	data := TraceReleaseEnd{TraceLock: l.traced()}
	ctx := start(limit, cfg.Tracer.ReleaseStart, data.TraceLock)
	done = true
	data.Err = release(ctx, l.locker.renewer.engine, l.lease)
	data.Took = time.Since(begun)
	end(ctx, cfg.Tracer.ReleaseEnd, data)
	return data.Err
}

// release calls the engine until it answers or ctx ends, with exponential backoff and jitter. If an
// attempt had an unknown outcome and the next one finds the acquisition gone, the first one
// succeeded.
func release(ctx context.Context, engine driver.Engine, lease driver.Lease) error {
	unknown := false
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		err := engine.Release(ctx, lease)
		switch {
		case err == nil || unknown && errors.Is(err, ErrNotHeld):
			return nil
		case errors.Is(err, ErrNotHeld), final(err):
			return err
		}
		unknown = true
		switch {
		case pause.Wait(ctx):
		case errors.Is(err, ErrUnavailable):
			return fmt.Errorf("releasing %q: %w", lease.Name, driver.OneLine(err))
		default:
			return fmt.Errorf("%w: releasing %q: %w", ErrUnavailable, lease.Name, driver.OneLine(err))
		}
	}
}
