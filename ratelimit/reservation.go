package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Reservation is a reserved time in the future. It is safe for concurrent use.
type Reservation struct {
	limiter *Limiter
	d       decision
	at      time.Time // the reserved time, by the clock of this process

	mu   sync.Mutex // guards over
	over bool       // cancelled
}

// Reserve takes one event of a key for the earliest possible time. [Reservation.Delay] says how
// long until then. If the event will not happen, call Cancel. The errors are those of Allow.
//
// The reservation stays valid after its time. So a process that was paused may act late, at the
// same time as others whose reservations are for now.
func (l *Limiter) Reserve(ctx context.Context, key string) (*Reservation, error) {
	return l.ReserveN(ctx, key, 1)
}

// ReserveN is [Limiter.Reserve] for n events at one time. An n above the burst is ErrInvalid. A
// time more than half a year away may be a *LimitedError.
func (l *Limiter) ReserveN(ctx context.Context, key string, n int) (*Reservation, error) {
	return l.ReserveWithin(ctx, key, n, driver.MaxRateAhead)
}

// ReserveWithin is [Limiter.ReserveN] with a bound: if the time would come later than within from
// now, it takes nothing and returns a *LimitedError. A negative within means 0.
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
	// The engine's delay counts from its answer, which has already arrived, so the time by this
	// clock is never too early.
	return &Reservation{limiter: l, d: d, at: time.Now().Add(max(0, d.taken.Ahead-p.burst))}, nil
}

// Result returns the state of the limit after this reservation, and whether the engine decided.
func (r *Reservation) Result() Result { return r.d.Result }

// Delay returns the time until the reserved time, or 0 if that has come.
func (r *Reservation) Delay() time.Duration { return max(0, time.Until(r.at)) }

// Cancel returns the reserved events, unless their time has come. Other callers benefit only if
// nothing was taken from the key since, because later reservations were computed with this one.
// Cancel uses the values of ctx but not its end. An error of the engine means that the events may
// be lost; the limit is still kept. Further calls do nothing.
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

// Wait waits until one event of a key may happen. If that would be after the deadline of ctx, it
// takes nothing and returns a *LimitedError at once. If the deadline turns out to be too early only
// after the engine's answer, or ctx ends during the wait, Wait cancels its reservation and returns
// a *LimitedError or the error of ctx. The other errors are those of Allow.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN is [Limiter.Wait] for n events at one time. An n above the burst is ErrInvalid.
func (l *Limiter) WaitN(ctx context.Context, key string, n int) error {
	within := driver.MaxRateAhead
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end)
	}
	r, err := l.ReserveWithin(ctx, key, n, within)
	if err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok && r.at.After(end) { // the answer took long
		late := &LimitedError{Key: key, Limit: r.d.Limit, RetryAfter: r.Delay()}
		_ = r.Cancel(ctx) // if it fails, the events are lost
		return late
	}
	timer := time.NewTimer(r.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		_ = r.Cancel(ctx) // if it fails, the events are lost
		return ctx.Err()
	}
}
