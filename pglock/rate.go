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

// rates is what an engine needs for rates.
type rates struct {
	lanes *lanes

	mu    sync.Mutex // guards all below
	takes int        // since the last sweep
	after string     // the last key that was swept; empty at the beginning
}

// sweepEvery is how many takes there are between two sweeps, of a thousand keys each: ten
// keys are looked at for one that a take may have made.
const sweepEvery = 100

// TakeRate makes a take; see [Engine.TakeRate].
func (r *rates) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	row, err := r.ask(ctx, "take_rate", take, take.Most.Microseconds())
	if err != nil {
		return driver.RateTaken{}, err
	}
	if len(row) != 3 {
		return driver.RateTaken{}, fmt.Errorf("%w: postgres: unexpected answer %q", driver.ErrUnavailable, row)
	}
	r.sweepSoon()
	return driver.RateTaken{OK: row.Text(0) == "t", Now: row.Micros(1), Ahead: time.Duration(row.Int(2)) * time.Microsecond}, nil
}

// ReturnRate undoes a take; see [Engine.ReturnRate].
func (r *rates) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	_, err := r.ask(ctx, "return_rate", take, taken.Now.UnixMicro(), taken.Ahead.Microseconds())
	return err
}

// ask calls a function with the key and the cost of a take and other numbers, again if its
// connection could not be had or was lost.
func (r *rates) ask(ctx context.Context, fn string, take driver.RateTake, others ...any) (row pipe.Row, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	args := append([]any{take.Key, take.Cost.Microseconds()}, others...)
	c, err := r.lanes.insist(ctx, "rate:"+take.Key, func(s *session) *pipe.Call { return s.Call(s.fn[fn], args...) }, nil)
	if err != nil {
		return nil, failure(err)
	}
	return c.Result(ctx)
}

// sweepSoon removes some keys that are idle, now and then.
func (r *rates) sweepSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takes++; r.takes%sweepEvery == 0 {
		go r.sweep(r.after) // ends within askLimit
	}
}

// sweep removes what is idle of the keys after one.
func (r *rates) sweep(after string) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	c, err := r.lanes.call(ctx, "sweep rates", func(s *session) *pipe.Call { return s.Call(s.fn["sweep_rates"], after) })
	if err != nil {
		return // the next one will
	}
	row, _ := c.Result(ctx) // it is answered
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = string(bytes.Join(row, []byte("|"))) // a key may have the sign between columns
}
