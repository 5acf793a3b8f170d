package ratelimit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// OnRegister returns rates that are kept as records, for engines that have records and no
// rates, such as filelock:
//
//	limiter := ratelimit.New(ratelimit.OnRegister(files.Register()), "mails", ratelimit.PerHour(3), nil)
//
// The clock is that of the register. A take reads the record and replaces it, again if
// somebody else has replaced it meanwhile, so it costs what a record costs: on files,
// a write to the disk. The record expires when all that was taken has come back.
func OnRegister(r driver.Register) driver.RateLimiter { return records{r} }

type records struct{ register driver.Register }

// recordKey is the record of a key, which may be as long as a record's may.
func recordKey(key string) string {
	const prefix = "fencelock:rate:"
	if driver.CheckName(prefix+key) != nil {
		return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(key)))
	}
	return prefix + key
}

// TakeRate grants events of a key or refuses them; see [driver.RateLimiter].
func (r records) TakeRate(ctx context.Context, take driver.RateTake) (taken driver.RateTaken, err error) {
	if err := take.Check(); err != nil {
		return taken, err
	}
	err = r.change(ctx, take.Key, func(s *gcra.State, earliest, latest time.Time) {
		ahead, ok := s.Take(earliest.UnixMicro(), take.Cost.Microseconds(), take.Most.Microseconds())
		if s.Last == earliest.UnixMicro() {
			s.Last = latest.UnixMicro() // as little time as can have passed will count
		}
		taken = driver.RateTaken{OK: ok, Ahead: time.Duration(ahead) * time.Microsecond, Now: time.UnixMicro(latest.UnixMicro())}
	})
	if err != nil {
		return driver.RateTaken{}, err
	}
	return taken, nil
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (r records) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	if err := take.Check(); err != nil {
		return err
	}
	return r.change(ctx, take.Key, func(s *gcra.State, _, _ time.Time) {
		s.Return(take.Cost.Microseconds(), taken.Now.Add(taken.Ahead).UnixMicro())
	})
}

// change changes the state of a key. Others may do so meanwhile: each time that it has to
// begin anew, one of them has got on.
func (r records) change(ctx context.Context, key string, f func(s *gcra.State, earliest, latest time.Time)) error {
	key = recordKey(key)
	for {
		rec, err := r.register.Get(ctx, key)
		if err != nil {
			return err
		}
		earliest, latest, err := r.register.Clock(ctx)
		if err != nil {
			return err
		}
		var s gcra.State
		if rec.Version != "" {
			if n, err := fmt.Sscanf(string(rec.Value), "%d %d", &s.Last, &s.Ahead); n != 2 || err != nil {
				return fmt.Errorf("%w: the record %q was written by another program", driver.ErrConfig, key)
			}
		}
		before := s
		if f(&s, earliest, latest); s == before {
			return nil
		}
		life := time.Duration(max(1, s.Ahead)) * time.Microsecond
		_, err = r.register.Swap(ctx, key, fmt.Appendf(nil, "%d %d", s.Last, s.Ahead), rec.Version, life)
		if !errors.Is(err, driver.ErrConflict) {
			return err
		}
	}
}
