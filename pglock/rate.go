package pglock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// rates is what an engine needs for rates. It has a connection of its own, which is made
// by the first take.
type rates struct {
	*ownTable

	mu    sync.Mutex // guards all below
	takes int        // since the last sweep
	after string     // the last key that was swept; empty at the beginning
}

// sweepEvery is how many takes there are between two sweeps, of a thousand keys each: ten
// keys are looked at for one that a take may have made.
const sweepEvery = 100

func newRates(e *Engine) *rates {
	return &rates{ownTable: newOwnTable(e, "fencelock.rate")}
}

// TakeRate grants events of a key or refuses them, in one transaction and by the server's
// clock; see [driver.RateLimiter]. A crash of the server, and a failover, forget what was
// granted: each key gets a burst anew.
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	row, err := e.rates.ask(ctx, "take_rate", take, take.Most.Microseconds())
	if err != nil {
		return driver.RateTaken{}, err
	}
	if len(row) != 3 {
		return driver.RateTaken{}, fmt.Errorf("%w: postgres: unexpected answer %q", driver.ErrUnavailable, row)
	}
	e.rates.sweepSoon()
	return driver.RateTaken{OK: row.Text(0) == "t", Now: row.Micros(1), Ahead: time.Duration(row.Int(2)) * time.Microsecond}, nil
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	_, err := e.rates.ask(ctx, "return_rate", take, taken.Now.Add(taken.Ahead).UnixMicro())
	return err
}

// ask calls a function with the key and the cost of a take and a number, again if its
// connection could not be had or was lost.
func (r *rates) ask(ctx context.Context, fn string, take driver.RateTake, number int64) (row pipe.Row, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	err = r.insist(ctx, func(ctx context.Context) error {
		row, err = r.call(ctx, fn, take.Key, take.Cost.Microseconds(), number)
		return err
	})
	return row, err
}

// call calls a function once. A session that does not know it has a schema that is gone.
func (r *rates) call(ctx context.Context, fn string, args ...any) (pipe.Row, error) {
	s, err := r.session.get(ctx)
	if err != nil {
		return nil, err
	}
	row, err := s.Call(s.fn[fn], args...).Result(ctx)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains([]string{"42883", "42P01"}, pg.Code) {
		r.there.Store(false)
		s.Kill(err)
	}
	return row, err
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
	row, err := r.call(ctx, "sweep_rates", after)
	if err != nil {
		return // the next one will
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = string(bytes.Join(row, []byte("|"))) // a key may have the sign between columns
}
