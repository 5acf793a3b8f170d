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

// The pauses between two tries, the first and the longest.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Release ends the hold at once, then tells the engine, on a context of its own
// and no longer than Config.ReleaseTimeout. Passing failures are tried again. A
// lock that was lost is ErrNotHeld. Another call does nothing and returns nil.
func (l *Lock) Release() error {
	l.mu.Lock()
	again := l.released
	l.released = true
	l.mu.Unlock()
	if again {
		return nil
	}
	l.feed(hold.Event{Kind: hold.Released}, clock.Now())
	err := l.releaseEngine()
	if lost := l.lost(); lost != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, lost)
	}
	end(l.values(), l.renewer.cfg.Tracer.HoldEnd, TraceHoldEnd{TraceLock: l.traced(), Held: l.held})
	return err
}

// goodbye is how long a caller whose time is over still waits for a release. An engine that
// answers needs less, and a program that ends right after a failed acquire leaves nothing
// locked.
const goodbye = 250 * time.Millisecond

// giveBack releases what a caller asked for and does not get. It waits for that until goodbye
// after the end of ctx, and leaves the rest to the background.
func (r *renewer) giveBack(ctx context.Context, release func() error) {
	ended, left := make(chan any), make(chan struct{})
	go func() { // ends with the release timeout at the latest
		var panicked any // of a hook; it belongs to the caller
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
			r.cfg.Logger.WarnContext(context.WithoutCancel(ctx), "release failed", "error", err) // the lock ends by itself
		}
	}()
	defer close(left)
	select {
	case p := <-ended:
		rethrow(p)
		return
	case <-ctx.Done():
	}
	longer := goodbye
	if end, ok := ctx.Deadline(); ok && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		longer += time.Until(end) // one of several releases for this caller may have waited
	}
	timer := time.NewTimer(longer)
	defer timer.Stop()
	select {
	case p := <-ended:
		rethrow(p)
	case <-timer.C:
	}
}

// rethrow goes on with a panic of another goroutine, if there was one.
func rethrow(p any) {
	if p != nil {
		panic(p)
	}
}

// releaseEngine asks the engine until it answers or the release timeout is over.
func (l *Lock) releaseEngine() error {
	cfg := &l.renewer.cfg
	begun := time.Now()
	limit := deadline.New(l.values(), begun.Add(cfg.ReleaseTimeout))
	defer limit.Stop()
	done := false
	defer unless(&done, func() { _ = release(limit, l.renewer.engine, l.lease) })
	data := TraceReleaseEnd{TraceLock: l.traced()}
	ctx := start(limit, cfg.Tracer.ReleaseStart, data.TraceLock)
	done = true
	data.Err = release(ctx, l.renewer.engine, l.lease)
	data.Took = time.Since(begun)
	end(ctx, cfg.Tracer.ReleaseEnd, data)
	return data.Err
}

// release asks an engine to release until it answers or ctx ends, with
// exponential backoff and jitter. After an attempt of unknown outcome, an
// acquisition that is not there any more is one that was released.
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
		if !pause.Wait(ctx) {
			return fmt.Errorf("%w: releasing %q: %w", ErrUnavailable, lease.Name, driver.OneLine(err))
		}
	}
}
