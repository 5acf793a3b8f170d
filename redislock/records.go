package redislock

import (
	"context"
	"crypto/rand"
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

// Records returns the records of this Redis. The record of a key is a string at
// record:<key>, so on a Cluster each is in a slot of its own. Records last as long as
// the server's data: a failover may take back the last swaps, a FLUSHALL all of them,
// and the quarantine of locks does not cover them.
func (e *Engine) Records() driver.Records { return records{e.client, e.acquirer.fitness} }

// records is the engine's records.
type records struct {
	*client
	fitness *fitness
}

// recordPrefix begins the key of every record.
const recordPrefix = "record:"

func (r records) recordKey(key string) string { return r.cfg.Prefix + recordPrefix + key }

// Get returns a record; see [driver.Records]. Passing errors are tried again, for no
// longer than Config.RetryTimeout.
func (r records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Record{}, err
	}
	limited := redisconn.WithDeadline(ctx, r.cfg.RetryTimeout)
	text, err := r.insist(ctx, limited, attemptLimit(0), redisconn.Call{Script: recordScript, Keys: []string{r.recordKey(key)}})
	if err != nil {
		return driver.Record{}, unavailable(err)
	}
	return readRecord(key, text), nil
}

// readRecord reads what the server keeps.
func readRecord(key, text string) driver.Record {
	version, value, _ := strings.Cut(text, " ")
	rec := driver.Record{Key: key, Version: version}
	if version != "" {
		rec.Value = []byte(value)
	}
	return rec
}

// Swap replaces a record; see [driver.Records]. Passing errors are tried again, for no
// longer than Config.RetryTimeout. With Config.MinReplicas it is ErrUnavailable if
// fewer replicas have it; the record may have changed then.
func (r records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := r.fitness.fit(ctx); err != nil {
		return "", err
	}
	next := rand.Text() // the versions of no other swap begin so
	return r.attempt(ctx, next, redisconn.Call{
		Script:   recordScript,
		Keys:     []string{r.recordKey(key)},
		Args:     []string{version, next, redisfmt.Millis(ttl), string(value)},
		Replicas: r.cfg.MinReplicas,
	})
}

// attempt makes a swap until the server has answered, or the time is up, and returns the
// version, which begins with next. It can be made twice: each try has a version of its own,
// since that of an earlier one may have expired, and the server knows those of all. If an
// earlier try may have been carried out, another version says nothing: it may have come
// after ours. So a server that is slow is not asked a second time, only one whose connection
// was lost. A server that refuses to wait for replicas has carried the swap out before.
func (r records) attempt(ctx context.Context, next string, c redisconn.Call) (string, error) {
	limited := redisconn.WithDeadline(ctx, r.cfg.RetryTimeout)
	args := slices.Clip(c.Args)
	maybe := false // an earlier try may have been carried out
	var why error
	for try, pause := 0, newBackoff(); ; pause.Wait(ctx) {
		try++
		c.Args = append(args, strconv.Itoa(try))
		reply := r.conn.Eval(limited, []redisconn.Call{c})[0]
		switch {
		case reply.Err == nil && reply.Text == "conflict" && !maybe: // certainly not ours
			return "", driver.ErrConflict
		case reply.Err == nil && reply.Text == "conflict":
			return "", fmt.Errorf("%w: the record has changed, perhaps by this swap: %w", driver.ErrUnavailable, why)
		case reply.Err == nil && strings.HasPrefix(reply.Text, next) && reply.Replicas >= c.Replicas:
			return reply.Text, nil
		case reply.Err == nil && strings.HasPrefix(reply.Text, next):
			return "", fmt.Errorf("%w: only %d replicas have the record, want %d", driver.ErrUnavailable, reply.Replicas, c.Replicas)
		case reply.Err == nil:
			return "", malformed(reply.Text)
		}
		if _, refused := errors.AsType[redisconn.ServerError](reply.Err); !refused || strings.HasPrefix(reply.Text, next) {
			maybe = true
		}
		why = cause(why, reply.Err)
		if !passing(reply.Err) || limited.Err() != nil || r.closed.Err() != nil {
			if err := unavailable(why); !maybe || errors.Is(err, driver.ErrUnavailable) {
				return "", err
			}
			return "", fmt.Errorf("%w: the record may have changed: %w", driver.ErrUnavailable, why)
		}
	}
}

// List returns records by a prefix of their keys; see [driver.Records]. It looks
// through all keys of the server.
func (r records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	err := r.conn.Scan(ctx, redisfmt.Literal(r.recordKey(prefix))+"*", func(found []string) error {
		keys = append(keys, found...)
		return nil
	})
	if err != nil {
		return nil, unavailable(err)
	}
	slices.Sort(keys)
	var list []driver.Record
	for part := range slices.Chunk(slices.Compact(keys), 100) { // values may be long
		calls := make([]redisconn.Call, len(part))
		for i, key := range part {
			calls[i] = redisconn.Call{Script: recordScript, Keys: []string{key}}
		}
		for i, reply := range r.conn.Eval(ctx, calls) {
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

// Clock returns the server's time; see [driver.Records]. On a Cluster, whose nodes
// have a clock each, the bounds are those of the slowest and the fastest.
func (r records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return earliest, latest, err
	}
	answers, err := r.conn.Each(redisconn.WithDeadline(ctx, r.cfg.RetryTimeout), "TIME")
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
