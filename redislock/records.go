package redislock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

var _ driver.RecordKeeper = (*Engine)(nil)

// Records returns the records of this Redis. The record of a key is a string at record:<key>, so on
// a Cluster each record is in a slot of its own. Records are as durable as the server's data: a
// failover may undo the last swaps, and FLUSHALL deletes all records. Config.Quarantine does not
// cover them.
func (e *Engine) Records() driver.Records { return records{e.client, e.acquirer.server} }

// records implements driver.Records.
type records struct {
	client *client
	server *serverCheck
}

// recordPrefix begins the Redis key of every record.
const recordPrefix = "record:"

func (r records) recordKey(key string) string { return r.client.cfg.Prefix + recordPrefix + key }

// Get returns a record; see [driver.Records]. Transient errors are retried for up to
// Config.RetryTimeout.
func (r records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Record{}, err
	}
	limited := redisconn.WithDeadline(ctx, r.client.cfg.RetryTimeout)
	text, err := r.client.retryUnavailable(ctx, limited, attemptLimit(0), redisconn.Call{Script: recordScript, Keys: []string{r.recordKey(key)}})
	if err != nil {
		return driver.Record{}, unavailable(err)
	}
	return readRecord(key, text), nil
}

// readRecord parses a stored record.
func readRecord(key, text string) driver.Record {
	version, value, _ := strings.Cut(text, " ")
	rec := driver.Record{Key: key, Version: version}
	if version != "" {
		rec.Value = []byte(value)
	}
	return rec
}

// Swap replaces a record; see [driver.Records]. Transient errors are retried for up to
// Config.RetryTimeout. With Config.MinReplicas, Swap returns ErrUnavailable if too few replicas
// acknowledge the write; the record may have changed then.
func (r records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	limited := redisconn.WithDeadline(ctx, r.client.cfg.RetryTimeout)
	if err := r.server.require(limited); err != nil {
		return "", err
	}
	next := rand.Text() // the versions of all attempts of this swap, and of no other, begin with it
	return r.untilAnswered(ctx, limited, next, redisconn.Call{
		Script:   recordScript,
		Keys:     []string{r.recordKey(key)},
		Args:     []string{version, next, redisfmt.Millis(ttl), string(value)},
		Replicas: r.client.cfg.MinReplicas,
	})
}

// untilAnswered repeats a swap until the server answers or limited ends, which is ctx with a deadline. It
// returns the new version, which begins with next. Repeating is safe: each attempt has a version of its own, since that of
// an earlier one may have expired, and the script recognises all of them.
//
// If an earlier attempt may have been executed, a conflict proves nothing: the other version may
// have been written after ours. So a slow server is not asked a second time; only a lost connection
// is retried. A server that refuses to wait for replicas has executed the swap before.
func (r records) untilAnswered(ctx, limited context.Context, next string, c redisconn.Call) (string, error) {
	args := slices.Clip(c.Args)
	maybe := false // an earlier attempt may have been executed
	var why error
	for try, pause := 0, newBackoff(); ; pause.Wait(ctx) {
		try++
		c.Args = append(args, strconv.Itoa(try))
		reply := r.client.conn.Eval(limited, []redisconn.Call{c})[0]
		switch {
		case reply.Err == nil && reply.Text == "conflict" && !maybe: // certainly not ours
			return "", driver.ErrConflict
		case reply.Err == nil && reply.Text == "conflict":
			return "", fmt.Errorf("%w: the record has changed, perhaps by this swap; read it again: %w", driver.ErrUnavailable, why)
		case reply.Err == nil && strings.HasPrefix(reply.Text, next) && reply.Replicas >= c.Replicas:
			return reply.Text, nil
		case reply.Err == nil && strings.HasPrefix(reply.Text, next):
			return "", fmt.Errorf("%w: %d of %d replicas acknowledged the record in time; it may have changed", driver.ErrUnavailable, reply.Replicas, c.Replicas)
		case reply.Err == nil:
			return "", malformed(reply.Text)
		}
		if _, refused := errors.AsType[redisconn.ServerError](reply.Err); !refused || strings.HasPrefix(reply.Text, next) {
			maybe = true
		}
		why = cause(why, reply.Err)
		if !passing(reply.Err) || limited.Err() != nil || r.client.closed.Err() != nil {
			if err := unavailable(why); !maybe || errors.Is(err, driver.ErrUnavailable) {
				return "", err
			}
			return "", fmt.Errorf("%w: the record may have changed: %w", driver.ErrUnavailable, why)
		}
	}
}

// List returns the records whose keys have a prefix; see [driver.Records]. It scans all keys of the
// server. Each request of the scan may take RetryTimeout.
func (r records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	err := r.client.conn.Scan(ctx, r.client.cfg.RetryTimeout, redisfmt.Literal(r.recordKey(prefix))+"*", func(found []string) error {
		keys = append(keys, found...)
		return nil
	})
	if err != nil {
		return nil, unavailable(err)
	}
	slices.Sort(keys)
	var list []driver.Record
	for part := range slices.Chunk(slices.Compact(keys), 100) { // values may be large
		calls := make([]redisconn.Call, len(part))
		for i, key := range part {
			calls[i] = redisconn.Call{Script: recordScript, Keys: []string{key}}
		}
		for i, reply := range r.client.conn.Eval(redisconn.WithDeadline(ctx, r.client.cfg.RetryTimeout), calls) {
			if reply.Err != nil {
				return nil, unavailable(reply.Err)
			}
			rec := readRecord(strings.TrimPrefix(part[i], r.recordKey("")), reply.Text)
			if rec.Version != "" && driver.CheckName(rec.Key) == nil {
				list = append(list, rec)
			}
		}
	}
	return list, nil
}

// Clock returns bounds of the server's time; see [driver.Records]. On a Cluster they are the times
// of the slowest and the fastest node.
func (r records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return earliest, latest, err
	}
	answers, err := r.client.conn.Each(redisconn.WithDeadline(ctx, r.client.cfg.RetryTimeout), "TIME")
	if err != nil {
		return earliest, latest, unavailable(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			return earliest, latest, unavailable(a.Err)
		}
		at, ok := redisfmt.ParseTime(a.Text)
		if !ok {
			return earliest, latest, malformed(a.Text)
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
		if at.After(latest) {
			latest = at
		}
	}
	return earliest, latest, nil
}

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
	if e.client.closed.Err() != nil {
		return "", unavailable(errClosed)
	}
	var args []string
	for _, n := range numbers {
		args = append(args, redisfmt.Decimal(n))
	}
	// One attempt may use all the time, because a repeated call may count twice.
	limited := redisconn.WithDeadline(ctx, e.client.cfg.RetryTimeout)
	text, err := e.client.retryUnavailable(ctx, limited, e.client.cfg.RetryTimeout, redisconn.Call{Script: s, Keys: []string{e.rateKey(key)}, Args: args})
	if text == "foreign" {
		err = fmt.Errorf("%w: the key %s was written by another program; delete it or use another key", driver.ErrConfig, e.rateKey(key))
	}
	return text, unavailable(err)
}

// rateKey returns the Redis key that holds the rate of a key.
func (e *Engine) rateKey(key string) string { return e.client.cfg.Prefix + "fencelock:rate:" + key }
