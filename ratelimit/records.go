package ratelimit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// OnRecords returns rates that are kept as records, for engines that have records and no
// rates, such as filelock:
//
//	limiter := ratelimit.New(ratelimit.OnRecords(files.Records()), "mails", ratelimit.PerHour(3), nil)
//
// The clock is that of the records. A take reads the record and replaces it, again if
// another process has replaced it meanwhile, so it costs what a record costs: on files,
// a write to the disk, and two for a key that was idle. Takes of one key that come
// together in a process share one such write: use one OnRecords for all its goroutines.
// The record expires when all that was taken has come back.
//
// A take whose context ends while other processes change the record is a
// fencelock.ErrConflict, and never a fencelock.ErrUnavailable: the records answer. A [Limiter]
// asks again then, as long as the context of its caller lasts. So a record store that begins to
// hang counts as down after one Config.Timeout without a change of the record, or three at
// most; the timeout should be twice what a take needs.
func OnRecords(r driver.Records) driver.RateLimiter {
	return &records{records: r, queues: map[string]*queue{}}
}

type records struct {
	records driver.Records

	mu     sync.Mutex        // guards queues and all that is in them
	queues map[string]*queue // by the key that takes of this process are under way for
}

// recordKey is the record of a key, which may be as long as a record's may.
func recordKey(key string) string {
	const prefix = "fencelock:rate:"
	if driver.CheckName(prefix+key) != nil {
		return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(key)))
	}
	return prefix + key
}

// TakeRate grants events of a key or refuses them; see [driver.RateLimiter].
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
	p := &pending{take: take, turn: make(chan bool, 1)}
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

// answer is what is answered to a take, in microseconds.
func answer(got, ahead int64, now time.Time) driver.RateTaken {
	return driver.RateTaken{OK: got > 0, Cost: time.Duration(got) * time.Microsecond, Ahead: time.Duration(ahead) * time.Microsecond, Now: time.UnixMicro(now.UnixMicro())}
}

// apply makes a take of the state of its key, or forgets it.
func (p *pending) apply(s *gcra.State, earliest, latest time.Time) {
	if p.reset {
		*s = gcra.State{}
		return
	}
	before := *s
	got, ahead := s.Take(earliest.UnixMicro(), p.take.Cost.Microseconds(), p.take.Most.Microseconds(), p.take.Least().Microseconds())
	switch {
	case got == 0 && before.Last <= latest.UnixMicro():
		*s = before // the clock need not have been set back
	case s.Last == earliest.UnixMicro():
		s.Last = latest.UnixMicro() // as little time as can have passed will count
	}
	p.taken = answer(got, ahead, latest)
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (r *records) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	return r.insist(ctx, take.Key, func(rec driver.Record) error {
		if rec.Version == "" {
			return nil // all has come back
		}
		return r.change(ctx, rec, func(s *gcra.State, _, _ time.Time) { s.Return(taken.Cost.Microseconds(), left(taken)) })
	})
}

// ResetRate forgets what was granted of a key, in its turn among the takes of this process;
// see [driver.RateLimiter].
func (r *records) ResetRate(ctx context.Context, key string) error {
	if err := driver.CheckName(key); err != nil {
		return err
	}
	rec, err := r.records.Get(ctx, recordKey(key))
	if err != nil || rec.Version == "" {
		return err
	}
	return r.submit(ctx, &pending{take: driver.RateTake{Key: key}, reset: true, turn: make(chan bool, 1)})
}

// left is the state that a take has left behind.
func left(taken driver.RateTaken) gcra.State {
	return gcra.State{Last: taken.Now.UnixMicro(), Ahead: taken.Ahead.Microseconds()}
}

// insist calls f with the record of a key until that is no conflict. Each conflict means that
// another process has changed the record. If ctx ends after a conflict the error is that
// conflict, whatever became of the request that was under way.
func (r *records) insist(ctx context.Context, key string, f func(rec driver.Record) error) error {
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

// contended is the error of a take that others kept from its turn until ctx ended.
func contended(ctx context.Context, key string) error {
	return fmt.Errorf("%w: others use %q too: %w", driver.ErrConflict, key, ctx.Err())
}

// begun is how long a record lasts that nothing was taken with. A take that needs longer
// begins anew.
const begun = time.Minute

// begin makes a record of an idle key, from which nothing has been taken. A take replaces
// that one, and no missing one: between its look at the clock and its write others may have
// used the key, and their record may have expired. It would not notice, and what it is
// granted would count from before theirs.
func (r *records) begin(ctx context.Context, key string) (rec driver.Record, err error) {
	rec = driver.Record{Key: key, Value: format(gcra.State{})}
	rec.Version, err = r.records.Swap(ctx, key, rec.Value, "", begun)
	return rec, err
}

// change changes the state in a record, unless that has changed meanwhile.
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

// parse reads what a record says, nothing if there is none.
func parse(rec driver.Record) (s gcra.State, err error) {
	if rec.Version == "" {
		return s, nil
	}
	if n, err := fmt.Sscanf(string(rec.Value), "%d %d", &s.Last, &s.Ahead); n != 2 || err != nil {
		return gcra.State{}, fmt.Errorf("%w: the record %q was written by another program", driver.ErrConfig, rec.Key)
	}
	return s, nil
}

// format is what a record says.
func format(s gcra.State) []byte { return fmt.Appendf(nil, "%d %d", s.Last, s.Ahead) }
