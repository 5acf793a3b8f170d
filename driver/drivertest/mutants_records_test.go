package drivertest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// brokenRecords are the records of a memlock with some of their methods replaced.
type brokenRecords struct {
	real  driver.Records
	get   func(ctx context.Context, key string) (driver.Record, error)
	swap  func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error)
	list  func(ctx context.Context, prefix string) ([]driver.Record, error)
	clock func(ctx context.Context) (earliest, latest time.Time, err error)
	await func(ctx context.Context, key, version string) (driver.Record, error)
}

func unbroken(r driver.Records) brokenRecords {
	return brokenRecords{r, r.Get, r.Swap, r.List, r.Clock, r.(driver.Awaiter).Await}
}

func (r *brokenRecords) Await(ctx context.Context, key, version string) (driver.Record, error) {
	return r.await(ctx, key, version)
}

func (r *brokenRecords) Get(ctx context.Context, key string) (driver.Record, error) {
	return r.get(ctx, key)
}

func (r *brokenRecords) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	return r.swap(ctx, key, value, version, ttl)
}

func (r *brokenRecords) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	return r.list(ctx, prefix)
}

func (r *brokenRecords) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	return r.clock(ctx)
}

// writes changes what is written.
func (r *brokenRecords) writes(change func(now driver.Record, rec *driver.Record, ttl *time.Duration)) {
	r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
		now, _ := r.real.Get(ctx, key)
		rec := driver.Record{Key: key, Value: value, Version: version}
		change(now, &rec, &ttl)
		return r.real.Swap(ctx, rec.Key, rec.Value, rec.Version, ttl)
	}
}

// secondStep is held by a client of "record swaps in two steps" in the second one.
var secondStep sync.Mutex

// recording are engines that are wrong about records.
var recording = []mutant{
	{"record swaps from any version", "record-swap", func(b *broken) {
		b.records.writes(func(now driver.Record, rec *driver.Record, _ *time.Duration) { rec.Version = now.Version })
	}},
	{"record swaps from none over one", "record-swap", func(b *broken) {
		b.records.writes(func(now driver.Record, rec *driver.Record, _ *time.Duration) {
			if rec.Version == "" {
				rec.Version = now.Version
			}
		})
	}},
	{"record swaps from its value", "record-swap", func(b *broken) {
		r := &b.records
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			rec, err := r.real.Get(ctx, key)
			if rec.Version != "" {
				rec.Version = "of " + string(rec.Value)
			}
			return rec, err
		}
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			now, _ := r.get(ctx, key)
			if now.Version != version {
				return "", driver.ErrConflict
			}
			real, _ := r.real.Get(ctx, key)
			_, err := r.real.Swap(ctx, key, value, real.Version, ttl)
			return "of " + string(value), err
		}
	}},
	{"record conflicts and writes", "record-swap", func(b *broken) {
		r := &b.records
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			next, err := r.real.Swap(ctx, key, value, version, ttl)
			if errors.Is(err, driver.ErrConflict) {
				now, _ := r.real.Get(ctx, key)
				_, _ = r.real.Swap(ctx, key, value, now.Version, ttl)
			}
			return next, err
		}
	}},
	{"record keeps text", "record-swap", func(b *broken) {
		b.records.writes(func(_ driver.Record, rec *driver.Record, _ *time.Duration) {
			rec.Value = []byte(strings.ToValidUTF8(string(rec.Value), "?"))
		})
	}},
	{"record without a value is none", "record-swap", func(b *broken) {
		r := &b.records
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			rec, err := r.real.Get(ctx, key)
			if len(rec.Value) == 0 {
				rec.Version = ""
			}
			return rec, err
		}
	}},
	{"record is read late", "record-swap", func(b *broken) {
		r, seen := &b.records, map[string]driver.Record{}
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			if rec, ok := seen[key]; ok {
				return rec, nil
			}
			rec, err := r.real.Get(ctx, key)
			seen[key] = rec
			return rec, err
		}
	}},
	{"record swaps in two steps", "record-race", func(b *broken) {
		r := &b.records
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			now, err := r.real.Get(ctx, key)
			if err == nil && now.Version != version {
				err = driver.ErrConflict
			}
			if err != nil {
				return "", err
			}
			time.Sleep(time.Millisecond)
			secondStep.Lock() // or all may try at once, and one alone get through
			defer secondStep.Unlock()
			now, _ = r.real.Get(ctx, key)
			return r.real.Swap(ctx, key, value, now.Version, ttl)
		}
	}},
	{"record stays for ever", "record-expiry", func(b *broken) {
		b.records.writes(func(_ driver.Record, _ *driver.Record, ttl *time.Duration) { *ttl = 0 })
	}},
	{"record goes early", "record-expiry", func(b *broken) {
		b.records.writes(func(_ driver.Record, _ *driver.Record, ttl *time.Duration) { *ttl -= *ttl / 5 })
	}},
	{"record keeps its first TTL", "record-expiry", func(b *broken) {
		first := map[string]time.Duration{}
		b.records.writes(func(_ driver.Record, rec *driver.Record, ttl *time.Duration) {
			if rec.Version == "" {
				first[rec.Key] = *ttl
			}
			*ttl = first[rec.Key]
		})
	}},
	{"record swaps from what has expired", "record-expiry", func(b *broken) {
		b.records.writes(func(now driver.Record, rec *driver.Record, _ *time.Duration) {
			if now.Version == "" {
				rec.Version = ""
			}
		})
	}},
	{"record versions begin again", "record-expiry", func(b *broken) {
		r := &b.records
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			rec, err := r.real.Get(ctx, key)
			if rec.Version != "" {
				rec.Version = "1"
			}
			return rec, err
		}
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			now, _ := r.real.Get(ctx, key)
			if (now.Version == "") != (version == "") {
				return "", driver.ErrConflict
			}
			_, err := r.real.Swap(ctx, key, value, now.Version, ttl)
			return "1", err
		}
	}},
	{"record keys ignore case", "record-list", func(b *broken) {
		b.records.writes(func(_ driver.Record, rec *driver.Record, _ *time.Duration) { rec.Key = strings.ToLower(rec.Key) })
	}},
	{"record prefix is a pattern", "record-list", func(b *broken) {
		r := &b.records
		r.list = func(ctx context.Context, prefix string) ([]driver.Record, error) {
			return r.real.List(ctx, strings.TrimSuffix(prefix, "*"))
		}
	}},
	{"record list has no order", "record-list", func(b *broken) {
		r := &b.records
		r.list = func(ctx context.Context, prefix string) ([]driver.Record, error) {
			list, err := r.real.List(ctx, prefix)
			slices.Reverse(list)
			return list, err
		}
	}},
	{"record list has keys alone", "record-list", func(b *broken) {
		r := &b.records
		r.list = func(ctx context.Context, prefix string) ([]driver.Record, error) {
			list, err := r.real.List(ctx, prefix)
			for i := range list {
				list[i].Value = nil
			}
			return list, err
		}
	}},
	{"record changes unseen before the wait", "record-await", func(b *broken) {
		r := &b.records
		r.await = func(ctx context.Context, key, _ string) (driver.Record, error) {
			now, err := r.real.Get(ctx, key)
			if err != nil {
				return now, err
			}
			return r.real.(driver.Awaiter).Await(ctx, key, now.Version)
		}
	}},
	{"record is awaited for ever", "record-await", func(b *broken) {
		r := &b.records
		r.await = func(ctx context.Context, key, version string) (driver.Record, error) {
			rec, err := r.real.Get(ctx, key)
			if err != nil || rec.Version != version {
				return rec, err
			}
			<-ctx.Done()
			return rec, ctx.Err()
		}
	}},
	{"record expires unnoticed", "record-await", func(b *broken) {
		r := &b.records
		r.await = func(ctx context.Context, key, version string) (driver.Record, error) {
			rec, err := r.real.(driver.Awaiter).Await(ctx, key, version)
			if err == nil && rec.Version == "" {
				<-ctx.Done()
				return rec, ctx.Err()
			}
			return rec, err
		}
	}},
	{"record is awaited beyond the context", "record-await", func(b *broken) {
		r := &b.records
		r.await = func(ctx context.Context, key, version string) (driver.Record, error) {
			rec, err := r.real.(driver.Awaiter).Await(ctx, key, version)
			if ctx.Err() != nil {
				err = driver.ErrUnavailable
			}
			return rec, err
		}
	}},
	{"record of a lock's name goes with it", "record-apart", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			if now, _ := b.records.real.Get(ctx, l.Name); now.Version != "" {
				_, _ = b.records.real.Swap(ctx, l.Name, nil, now.Version, 1)
			}
			return b.process.Release(ctx, l)
		}
	}},
	{"record beside a lock is listed", "record-apart", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			_, _ = b.records.real.Swap(ctx, req.Name, []byte("a lock"), "", 0)
			return b.process.Acquire(ctx, req)
		}
	}},
	{"record is listed as a lock", "record-apart", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			list, err := b.process.List(ctx, q)
			recs, _ := b.records.real.List(ctx, q.Prefix)
			for _, r := range recs {
				list = append(list, driver.Status{Name: r.Key})
			}
			return list, err
		}
	}},
	{"record swaps with any input", "record-input", func(b *broken) {
		r := &b.records
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			if driver.CheckSwap(key, value, ttl) != nil {
				return "1", nil
			}
			return r.real.Swap(ctx, key, value, version, ttl)
		}
	}},
	{"record swaps though its context has ended", "record-input", func(b *broken) {
		r := &b.records
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			next, err := r.real.Swap(context.WithoutCancel(ctx), key, value, version, ttl)
			return next, errors.Join(err, ctx.Err())
		}
	}},
	{"record conflicts in an outage", "record-outage", func(b *broken) {
		r := &b.records
		r.swap = func(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
			next, err := r.real.Swap(ctx, key, value, version, ttl)
			if errors.Is(err, driver.ErrUnavailable) {
				err = driver.ErrConflict
			}
			return next, err
		}
	}},
	{"record is none in an outage", "record-outage", func(b *broken) {
		r := &b.records
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			rec, err := r.real.Get(ctx, key)
			if errors.Is(err, driver.ErrUnavailable) {
				return driver.Record{Key: key}, nil
			}
			return rec, err
		}
	}},
	{"record is gone after a restart", "record-lasts", func(b *broken) {
		r := &b.records
		r.get = func(ctx context.Context, key string) (driver.Record, error) {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			if b.world.restarts > 0 {
				return driver.Record{Key: key}, nil
			}
			return r.real.Get(ctx, key)
		}
	}},
	{"record clocks differ", "record-clock", func(b *broken) {
		b.world.mu.Lock()
		ahead := time.Duration(b.world.clients) * time.Hour
		b.world.mu.Unlock()
		b.records.clock = func(context.Context) (earliest, latest time.Time, err error) {
			now := time.Now().Add(ahead)
			return now, now, nil
		}
	}},
	{"record clock goes back", "record-clock", func(b *broken) {
		var calls atomic.Int64
		b.records.clock = func(context.Context) (earliest, latest time.Time, err error) {
			now := time.Now().Add(-time.Duration(calls.Add(1)) * time.Second)
			return now, now, nil
		}
	}},
	{"record clock stands still", "record-clock", func(b *broken) {
		b.records.clock = func(context.Context) (earliest, latest time.Time, err error) {
			return time.Unix(1, 0), time.Unix(1, 0), nil
		}
	}},
}
