package memlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// TakeRate grants or refuses events of a key; see [driver.RateLimiter].
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (taken driver.RateTaken, err error) {
	if err = take.Check(); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return taken, err
	}
	err = e.call(ctx, func(now time.Time) error {
		got, ahead := e.store.rates.Take(take.Key, now.UnixMicro(), take.Cost.Microseconds(), take.Most.Microseconds(), take.Least().Microseconds())
		taken = driver.RateTaken{OK: got > 0, Cost: time.Duration(got) * time.Microsecond, Ahead: time.Duration(ahead) * time.Microsecond, Now: time.UnixMicro(now.UnixMicro())}
		return nil
	})
	return taken, err
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.call(ctx, func(time.Time) error {
		e.store.rates.Return(take.Key, taken.Cost.Microseconds(), gcra.State{Last: taken.Now.UnixMicro(), Ahead: taken.Ahead.Microseconds()})
		return nil
	})
}

// ResetRate deletes the state of a key; see [driver.RateLimiter].
func (e *Engine) ResetRate(ctx context.Context, key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.call(ctx, func(time.Time) error {
		e.store.rates.Reset(key)
		return nil
	})
}
