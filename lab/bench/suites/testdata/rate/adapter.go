// Package rate has the API of golang.org/x/time/rate on the algorithm of fencelock's rate limiter,
// so that the tests of x/time run on it. It is for nothing else.
//
// The tests give the time of each call. fencelock's limiter takes the engine's clock, so the adapter
// uses the algorithm, which all engines share, without an engine.
package rate

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/gcra"
)

// Limit is in events per second.
type Limit float64

const (
	Inf         = Limit(math.MaxFloat64)
	InfDuration = time.Duration(math.MaxInt64)
)

// Every is the limit of one event in an interval.
func Every(interval time.Duration) Limit {
	if interval <= 0 {
		return Inf
	}
	return 1 / Limit(interval.Seconds())
}

// Limiter is one key of a limiter.
type Limiter struct {
	mu    sync.Mutex
	limit Limit // guarded by mu
	burst int   // guarded by mu
	state gcra.State

	// A test logs these fields of x/time/rate.
	tokens, last, lastEvent any
}

func NewLimiter(r Limit, b int) *Limiter { return &Limiter{limit: r, burst: b} }

// interval is the cost of one event in microseconds, rounded up. Package ratelimit refuses limits
// whose interval is not finite.
func (l *Limiter) interval() int64 {
	return int64(min(math.Ceil(1e6/float64(l.limit)), math.MaxInt32*1e6))
}

// Reservation is what reserveN has granted.
type Reservation struct {
	ok        bool
	lim       *Limiter
	timeToAct time.Time
	cost      int64
	left      gcra.State
}

func (l *Limiter) reserveN(t time.Time, n int, most time.Duration) Reservation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == Inf {
		return Reservation{ok: true, lim: l, timeToAct: t}
	}
	if n > l.burst {
		return Reservation{lim: l}
	}
	each, whole := l.interval(), int64(l.burst)*l.interval()
	cost := int64(n) * each
	got, ahead := l.state.Take(t.UnixMicro(), cost, whole+min(most.Microseconds(), math.MaxInt32*1e6), max(1, cost))
	act := t.Add(time.Duration(max(0, ahead-whole)) * time.Microsecond)
	return Reservation{ok: got == cost, lim: l, timeToAct: act, cost: cost, left: l.state}
}

// CancelAt returns the events of a reservation, unless it is too late.
func (r *Reservation) CancelAt(t time.Time) {
	if !r.ok || !r.timeToAct.After(t) {
		return
	}
	r.lim.mu.Lock()
	defer r.lim.mu.Unlock()
	r.lim.state.Return(r.cost, r.left)
}

func (l *Limiter) Allow() bool                      { return l.AllowN(time.Now(), 1) }
func (l *Limiter) AllowN(t time.Time, n int) bool   { return l.reserveN(t, n, 0).ok }
func (l *Limiter) WaitN(ctx context.Context, n int) { _ = l.wait(ctx, n, time.Now(), newTimer) }

// TokensAt is how many events are left, less than zero if some are reserved.
func (l *Limiter) TokensAt(t time.Time) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.burst) - float64(l.state.At(t.UnixMicro()))/float64(l.interval())
}

func (l *Limiter) SetLimit(r Limit) { l.SetLimitAt(time.Now(), r) }

// SetLimitAt changes the limit: what was granted keeps the time that it took.
func (l *Limiter) SetLimitAt(_ time.Time, r Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = r
}

func (l *Limiter) SetBurstAt(_ time.Time, b int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.burst = b
}

func newTimer(d time.Duration) (<-chan time.Time, func() bool, func()) {
	timer := time.NewTimer(d)
	return timer.C, timer.Stop, func() {}
}

// wait reserves events and waits for them, on a clock that the tests replace.
func (l *Limiter) wait(ctx context.Context, n int, t time.Time, newTimer func(time.Duration) (<-chan time.Time, func() bool, func())) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	most := InfDuration
	if deadline, ok := ctx.Deadline(); ok {
		most = deadline.Sub(t)
	}
	r := l.reserveN(t, n, most)
	if !r.ok {
		return errors.New("more than the burst, or too late")
	}
	delay := r.timeToAct.Sub(t)
	if delay <= 0 {
		return nil
	}
	ch, stop, advance := newTimer(delay)
	defer stop()
	advance()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		r.CancelAt(time.Now())
		return ctx.Err()
	}
}
