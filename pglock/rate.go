package pglock

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// rates implements driver.RateLimiter.
type rates struct {
	pipelines *pipelines

	mu    sync.Mutex // guards all below
	takes int        // since the last sweep
	after string     // the last key that was swept; empty at the start
}

// sweepEvery is how many takes there are between two sweeps of a thousand keys each: per take,
// which adds at most one key, ten keys are checked.
const sweepEvery = 100

// TakeRate makes a take; see [Engine.TakeRate].
func (r *rates) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	if err := take.Check(); err != nil {
		return driver.RateTaken{}, err
	}
	row, err := r.ask(ctx, "take_rate", take.Key, take.Cost.Microseconds(), take.Most.Microseconds(), take.Least().Microseconds())
	if err != nil {
		return driver.RateTaken{}, err
	}
	if len(row) != 3 {
		return driver.RateTaken{}, fmt.Errorf("%w: postgres: unexpected result of take_rate: %q", driver.ErrUnavailable, row)
	}
	r.sweepSoon()
	got := time.Duration(row.Int(0)) * time.Microsecond
	return driver.RateTaken{OK: got > 0, Cost: got, Now: row.Micros(1), Ahead: time.Duration(row.Int(2)) * time.Microsecond}, nil
}

// ReturnRate undoes a take; see [Engine.ReturnRate].
func (r *rates) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	_, err := r.ask(ctx, "return_rate", take.Key, taken.Cost.Microseconds(), taken.Now.UnixMicro(), taken.Ahead.Microseconds())
	return err
}

// ResetRate deletes the state of a key; see [Engine.ResetRate].
func (r *rates) ResetRate(ctx context.Context, key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	_, err := r.ask(ctx, "reset_rate", key)
	return err
}

// ask calls a function with a key and numbers. It repeats the call if it got no connection or lost
// it.
func (r *rates) ask(ctx context.Context, fn, key string, numbers ...any) (row pipe.Row, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	args := append([]any{key}, numbers...)
	c, err := r.pipelines.retryUnavailable(ctx, "rate:"+key, func(s *session) *pipe.Call { return s.Call(s.fn[fn], args...) }, nil)
	if err != nil {
		return nil, failure(err)
	}
	return c.Result(ctx)
}

// sweepSoon starts a sweep every sweepEvery takes.
func (r *rates) sweepSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takes++; r.takes%sweepEvery == 0 {
		go r.sweep(r.after) // ends within askLimit
	}
}

// sweep removes the idle ones of the next thousand keys.
func (r *rates) sweep(after string) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	c, err := r.pipelines.call(ctx, "sweep rates", func(s *session) *pipe.Call { return s.Call(s.fn["sweep_rates"], after) })
	if err != nil {
		return // the next sweep will do it
	}
	row, _ := c.Result(ctx) // it is answered
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = string(bytes.Join(row, []byte("|"))) // keys may contain the separator
}
