package redislock

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

var _ driver.RateLimiter = (*Engine)(nil)

var (
	//go:embed lua/take_rate.lua
	takeRateLua string
	//go:embed lua/return_rate.lua
	returnRateLua string
	//go:embed lua/reset_rate.lua
	resetRateLua string

	takeRateScript   = redisconn.NewScript(takeRateLua)
	returnRateScript = redisconn.NewScript(returnRateLua)
	resetRateScript  = redisconn.NewScript(resetRateLua)
)

// TakeRate grants or refuses events of a key, atomically and by the server's clock; see
// [driver.RateLimiter]. The key expires when all its events have been regained. Refusals and
// queries write nothing. TakeRate works under any eviction policy and with Config.Quarantine. A
// server that has lost a key grants a full burst again.
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	if err := take.Check(); err != nil {
		return driver.RateTaken{}, err
	}
	text, err := e.rate(ctx, takeRateScript, take.Key, take.Cost.Microseconds(), take.Most.Microseconds(), take.Least().Microseconds())
	if err != nil {
		return driver.RateTaken{}, err
	}
	w := redisfmt.Words{Rest: text}
	got, now, ahead := w.Int(), w.Int(), w.Int()
	if w.Bad {
		return driver.RateTaken{}, malformed(text)
	}
	return driver.RateTaken{OK: got > 0, Cost: time.Duration(got) * time.Microsecond, Now: time.UnixMicro(now), Ahead: time.Duration(ahead) * time.Microsecond}, nil
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	_, err := e.rate(ctx, returnRateScript, take.Key, taken.Cost.Microseconds(), taken.Now.UnixMicro(), taken.Ahead.Microseconds())
	return err
}

// ResetRate deletes the state of a key; see [driver.RateLimiter].
func (e *Engine) ResetRate(ctx context.Context, key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	_, err := e.rate(ctx, resetRateScript, key)
	return err
}

// rate runs a script on a key with numeric arguments.
func (e *Engine) rate(ctx context.Context, s *redisconn.Script, key string, numbers ...int64) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if e.closed.Err() != nil {
		return "", unavailable(errClosed)
	}
	var args []string
	for _, n := range numbers {
		args = append(args, redisfmt.Decimal(n))
	}
	// One attempt may use all the time, because a repeated call may count twice.
	limited := redisconn.WithDeadline(ctx, e.cfg.RetryTimeout)
	text, err := e.retryUnavailable(ctx, limited, e.cfg.RetryTimeout, redisconn.Call{Script: s, Keys: []string{e.rateKey(key)}, Args: args})
	if text == "foreign" {
		err = fmt.Errorf("%w: the key %s was written by another program; delete it or use another key", driver.ErrConfig, e.rateKey(key))
	}
	return text, unavailable(err)
}

// rateKey returns the Redis key that holds the rate of a key.
func (e *Engine) rateKey(key string) string { return e.cfg.Prefix + "fencelock:rate:" + key }
