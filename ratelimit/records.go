package ratelimit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// OnRecords returns a rate limiter that stores its counts as records. Use it for engines that have
// records but no rates, such as filelock:
//
//	limiter := ratelimit.New(ratelimit.OnRecords(files.Records()), "mails", ratelimit.PerHour(3), nil)
//
// It uses the clock of the records. A take reads the record and replaces it, and repeats this if
// another process has replaced it in the meantime. On files this costs one write to the disk, and
// two for an idle key. Concurrent takes of one key in one process share a write if they share the
// OnRecords, so create one per process. A record expires when the whole burst is available again.
//
// If the context of a take ends while other processes keep changing the record, the error is
// fencelock.ErrConflict and not fencelock.ErrUnavailable, because the records do answer. A
// [Limiter] retries it as long as the context of its caller lasts. A store that stops answering
// therefore counts as down after one to three times Config.Timeout. Set the timeout to at least
// twice the duration of a take.
func OnRecords(r fencelock.Records) fencelock.RateLimiter {
	return &records{records: r, queues: map[string]*queue{}}
}

type records struct {
	records driver.Records

	mu     sync.Mutex        // guards queues and their contents
	queues map[string]*queue // by key; only keys with takes in progress
}

// recordKey returns the record's key. A key that would be too long with the prefix is hashed.
func recordKey(key string) string {
	const prefix = "fencelock:rate:"
	if driver.CheckName(prefix+key) != nil {
		return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(key)))
	}
	return prefix + key
}

// TakeRate implements driver.RateLimiter.
func (r *records) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	err := take.Check()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.RateTaken{}, err
	}
	if take.Cost == 0 {
		return r.look(ctx, take.Key)
	}
	p := &pending{take: take, result: make(chan bool, 1)}
	if err := r.submit(ctx, p); err != nil {
		return driver.RateTaken{}, err
	}
	return p.taken, nil
}

// look reads the state of a key.
func (r *records) look(ctx context.Context, key string) (driver.RateTaken, error) {
	rec, err := r.records.Get(ctx, recordKey(key))
	if err != nil {
		return driver.RateTaken{}, err
	}
	earliest, latest, err := r.records.Clock(ctx)
	if err != nil {
		return driver.RateTaken{}, err
	}
	s, err := parse(rec)
	return answer(0, s.At(earliest.UnixMicro()), latest), err
}

// answer returns the answer to a take. Its arguments are in microseconds.
func answer(got, ahead int64, now time.Time) driver.RateTaken {
	return driver.RateTaken{OK: got > 0, Cost: time.Duration(got) * time.Microsecond, Ahead: time.Duration(ahead) * time.Microsecond, Now: time.UnixMicro(now.UnixMicro())}
}

// apply makes a take from the state of its key, or resets the state.
func (p *pending) apply(s *gcra.State, earliest, latest time.Time) {
	if p.reset {
		*s = gcra.State{}
		return
	}
	before := *s
	got, ahead := s.Take(earliest.UnixMicro(), p.take.Cost.Microseconds(), p.take.Most.Microseconds(), p.take.Least().Microseconds())
	switch {
	case got == 0 && before.Last <= latest.UnixMicro():
		*s = before // the clock was not necessarily set back
	case s.Last == earliest.UnixMicro():
		s.Last = latest.UnixMicro() // count as little elapsed time as possible
	}
	p.taken = answer(got, ahead, latest)
}

// ReturnRate implements driver.RateLimiter.
func (r *records) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	return r.retryConflicts(ctx, take.Key, func(rec driver.Record) error {
		if rec.Version == "" {
			return nil // the whole burst is available already
		}
		return r.change(ctx, rec, func(s *gcra.State, _, _ time.Time) { s.Return(taken.Cost.Microseconds(), left(taken)) })
	})
}

// ResetRate implements driver.RateLimiter. It waits in the queue among the takes of this process.
func (r *records) ResetRate(ctx context.Context, key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	rec, err := r.records.Get(ctx, recordKey(key))
	if err != nil || rec.Version == "" {
		return err
	}
	return r.submit(ctx, &pending{take: driver.RateTake{Key: key}, reset: true, result: make(chan bool, 1)})
}

// left returns the state after a take.
func left(taken driver.RateTaken) gcra.State {
	return gcra.State{Last: taken.Now.UnixMicro(), Ahead: taken.Ahead.Microseconds()}
}

// retryConflicts calls f with the record of a key, and again after each conflict. A conflict means
// that another process has changed the record. If ctx ends after a conflict, retryConflicts returns
// that conflict, whatever happened to the last request.
func (r *records) retryConflicts(ctx context.Context, key string, f func(rec driver.Record) error) error {
	var conflict error
	for {
		rec, err := r.records.Get(ctx, recordKey(key))
		if err == nil {
			err = f(rec)
		}
		switch {
		case err != nil && conflict != nil && ctx.Err() != nil:
			return contended(ctx, key)
		case !errors.Is(err, driver.ErrConflict):
			return err
		}
		conflict = err
	}
}

// contended is the error of a take that other processes delayed until ctx ended.
func contended(ctx context.Context, key string) error {
	return fmt.Errorf("%w: other processes are changing %q: %w", driver.ErrConflict, key, ctx.Err())
}

// begun is how long an empty record lasts. A take that needs longer starts over.
const begun = time.Minute

// begin stores an empty record for an idle key. A take always replaces a record and never creates
// one: between its reading of the clock and its write, other processes may have used the key and
// their record may have expired. The take would not notice that, and its time would count from
// before theirs.
func (r *records) begin(ctx context.Context, key string) (rec driver.Record, err error) {
	rec = driver.Record{Key: key, Value: format(gcra.State{})}
	rec.Version, err = r.records.Swap(ctx, key, rec.Value, "", begun)
	return rec, err
}

// change changes the state in a record, with a conflict if the record has changed.
func (r *records) change(ctx context.Context, rec driver.Record, f func(s *gcra.State, earliest, latest time.Time)) error {
	earliest, latest, err := r.records.Clock(ctx)
	if err != nil {
		return err
	}
	s, err := parse(rec)
	if err != nil {
		return err
	}
	before := s
	if f(&s, earliest, latest); s == before {
		return nil
	}
	life := time.Duration(max(1, s.Ahead)) * time.Microsecond
	_, err = r.records.Swap(ctx, rec.Key, format(s), rec.Version, life)
	return err
}

// parse reads a record. A missing record is the zero state.
func parse(rec driver.Record) (s gcra.State, err error) {
	if rec.Version == "" {
		return s, nil
	}
	last, ahead, _ := strings.Cut(string(rec.Value), " ")
	if s.Last, err = strconv.ParseInt(last, 10, 64); err == nil {
		s.Ahead, err = strconv.ParseInt(ahead, 10, 64)
	}
	if err != nil {
		return gcra.State{}, fmt.Errorf("%w: the record %q was written by another program", driver.ErrConfig, rec.Key)
	}
	return s, nil
}

// format returns the value of a record.
func format(s gcra.State) []byte { return fmt.Appendf(nil, "%d %d", s.Last, s.Ahead) }
