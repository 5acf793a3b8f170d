package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Reservation is a turn in the future. It is safe for concurrent use.
type Reservation struct {
	limiter *Limiter
	d       decision
	at      time.Time // when the turn comes, by the clock of this process

	mu   sync.Mutex // guards over
	over bool       // it was cancelled
}

// Reserve takes one event of a key for as soon as it may happen, and says when that is:
// whoever does not do it then should Cancel. Its errors are those of Allow.
//
// The turn is the caller's even if it comes late: a process that was frozen meanwhile
// acts beside others whose turns are now.
func (l *Limiter) Reserve(ctx context.Context, key string) (*Reservation, error) {
	return l.ReserveN(ctx, key, 1)
}

// ReserveN is Reserve for n events, all at one time. More than the burst is ErrInvalid. A
// turn that is more than half a year away may be a *LimitedError.
func (l *Limiter) ReserveN(ctx context.Context, key string, n int) (*Reservation, error) {
	return l.ReserveWithin(ctx, key, n, driver.MaxRateAhead)
}

// ReserveWithin is ReserveN for a turn that comes within a time, less than 0 being 0: one
// that would come later is a *LimitedError, and nothing is taken.
func (l *Limiter) ReserveWithin(ctx context.Context, key string, n int, within time.Duration) (*Reservation, error) {
	d, err := l.decide(ctx, key, wish{n: n, wait: max(0, within)})
	if err != nil {
		return nil, err
	}
	if !d.OK {
		return nil, &LimitedError{Key: key, Limit: d.Limit, RetryAfter: d.RetryAfter}
	}
	p := l.pace
	if d.Err != nil && l.cfg.Down == FailLocal {
		p = l.local
	}
	// The engine said how long from its answer on, and the answer is here: so it is no
	// earlier by this clock.
	return &Reservation{limiter: l, d: d, at: time.Now().Add(max(0, d.taken.Ahead-p.burst))}, nil
}

// Result says what is left of the limit, and whether the engine decided.
func (r *Reservation) Result() Result { return r.d.Result }

// Delay returns how long it is until the turn comes, 0 once it has.
func (r *Reservation) Delay() time.Duration { return max(0, time.Until(r.at)) }

// Cancel gives the turn back, unless it has come. Others get it only if nobody has taken
// from the key since: whoever did was told a time that rests on this one. ctx lends its
// values and not its end. An error of the engine means that the turn may be lost, which
// harms nobody. Cancelling twice is harmless.
func (r *Reservation) Cancel(ctx context.Context) error {
	r.mu.Lock()
	over := r.over || r.Delay() == 0
	r.over = true
	r.mu.Unlock()
	if over {
		return nil
	}
	return r.limiter.back(ctx, &r.d)
}

// Wait waits until one event of a key may happen. If its turn would come after ctx's
// deadline it returns a *LimitedError at once, and takes nothing; if that shows only when
// the engine has answered, it gives the turn back. So it does if ctx ends earlier, as Cancel
// does, and returns ctx's error. Its other errors are those of Allow.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN is Wait for n events, all at one time. More than the burst is ErrInvalid.
func (l *Limiter) WaitN(ctx context.Context, key string, n int) error {
	within := driver.MaxRateAhead
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end)
	}
	r, err := l.ReserveWithin(ctx, key, n, within)
	if err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok && r.at.After(end) { // the answer took its time
		late := &LimitedError{Key: key, Limit: r.d.Limit, RetryAfter: r.Delay()}
		_ = r.Cancel(ctx) // the turn is lost if that fails
		return late
	}
	timer := time.NewTimer(r.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		_ = r.Cancel(ctx) // the turn is lost if that fails
		return ctx.Err()
	}
}
