// Package redis_rate has the API of go-redis/redis_rate on fencelock's rate limiter on Redis, so
// that the tests of redis_rate run on fencelock. It is for nothing else.
package redis_rate

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// Limit is a rate.
type Limit struct {
	Rate, Burst int
	Period      time.Duration
}

func PerSecond(rate int) Limit { return Limit{Rate: rate, Burst: rate, Period: time.Second} }

func (l Limit) IsZero() bool { return l == Limit{} }

func (l Limit) String() string { return fmt.Sprintf("%d req/s (burst %d)", l.Rate, l.Burst) }

// Limiter takes a limit with each call, which a limiter of fencelock has from its start.
type Limiter struct{ engine fencelock.RateLimiter }

// NewLimiter returns a limiter on the server of a ring: fencelock refuses the ring itself.
func NewLimiter(ring *redis.Ring) *Limiter {
	var addr string
	for _, a := range ring.Options().Addrs {
		addr = a
	}
	return &Limiter{goredis.New(redis.NewClient(&redis.Options{Addr: addr}), nil)}
}

func (l *Limiter) of(limit Limit) *ratelimit.Limiter {
	return ratelimit.New(l.engine, "rate", ratelimit.Limit{Events: limit.Rate, Per: limit.Period, Burst: limit.Burst}, nil)
}

// Result is what a call has decided.
type Result struct {
	Limit                  Limit
	Allowed, Remaining     int
	RetryAfter, ResetAfter time.Duration
}

// Allow takes one event.
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (*Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n events or none. Zero events are a Peek in fencelock.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	if n > 0 {
		return result(limit)(l.of(limit).AllowN(ctx, key, n))
	}
	r, err := result(limit)(l.of(limit).Peek(ctx, key))
	if err == nil {
		r.RetryAfter = -1 // Peek's is for one event
	}
	return r, err
}

// AllowAtMost takes as many of n events as there are.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	if n == 0 {
		return l.AllowN(ctx, key, limit, 0)
	}
	return result(limit)(l.of(limit).AllowAtMost(ctx, key, n))
}

// Reset gives a key its whole burst again.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.of(PerSecond(1)).Reset(ctx, key)
}

func result(limit Limit) func(ratelimit.Result, error) (*Result, error) {
	return func(r ratelimit.Result, err error) (*Result, error) {
		if err != nil {
			return nil, err
		}
		out := &Result{Limit: limit, Allowed: r.Granted, Remaining: r.Remaining, RetryAfter: -1, ResetAfter: r.Reset}
		if r.RetryAfter > 0 {
			out.RetryAfter = r.RetryAfter
		}
		return out, nil
	}
}
