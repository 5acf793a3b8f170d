package redislock

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

var _ driver.RateLimiter = (*Engine)(nil)

var (
	//go:embed lua/take_rate.lua
	takeRateLua string
	//go:embed lua/return_rate.lua
	returnRateLua string

	takeRateScript   = NewScript(takeRateLua)
	returnRateScript = NewScript(returnRateLua)
)

// TakeRate grants events of a key or refuses them, in one script and by the server's clock;
// see [driver.RateLimiter]. The key lasts until its events have come back, and a refusal
// writes nothing. It works with any eviction policy, and beside a quarantine: a server
// that has forgotten a key grants a burst of it anew.
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	text, err := e.rate(ctx, takeRateScript, take, take.Most)
	if err != nil {
		return driver.RateTaken{}, err
	}
	w := words.Words{Rest: text}
	word := w.Next()
	taken := driver.RateTaken{OK: word == "taken", Now: time.UnixMicro(w.Int()), Ahead: time.Duration(w.Int()) * time.Microsecond}
	if w.Bad || !taken.OK && word != "refused" {
		return driver.RateTaken{}, malformed(text)
	}
	return taken, nil
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	end := taken.Now.Add(taken.Ahead).Sub(time.UnixMicro(0))
	_, err := e.rate(ctx, returnRateScript, take, end)
	return err
}

// rate runs a script with the cost of a take and a time.
func (e *Engine) rate(ctx context.Context, s *Script, take driver.RateTake, at time.Duration) (string, error) {
	if err := take.Check(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if e.closed.Err() != nil {
		return "", unavailable(errClosed)
	}
	text, err := e.patiently(ctx, Call{Script: s, Keys: []string{e.rateKey(take.Key)},
		Args: []string{strconv.FormatInt(take.Cost.Microseconds(), 10), strconv.FormatInt(at.Microseconds(), 10)}})
	if text == "foreign" {
		err = fmt.Errorf("%w: %s was written by another program", driver.ErrConfig, e.rateKey(take.Key))
	}
	return text, unavailable(err)
}

// patiently makes a call until the server has answered or RetryTimeout is over. It waits
// for an answer as long as it may, since a call that is made again may count twice.
func (e *Engine) patiently(ctx context.Context, c Call) (string, error) {
	limited := withDeadline(ctx, e.cfg.RetryTimeout)
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		text, err := e.eval(limited, c)
		why = cause(why, err)
		if err == nil || !passing(err) || limited.Err() != nil || e.closed.Err() != nil {
			return text, why
		}
	}
}

// rateKey is where the rate of a key is.
func (e *Engine) rateKey(key string) string { return e.cfg.Prefix + "fencelock:rate:" + key }
