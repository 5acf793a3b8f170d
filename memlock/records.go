package memlock

import (
	"bytes"
	"context"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

var _ driver.Awaiter = records{}

// record is a stored record. An expired one stays until forget finds it.
type record struct {
	value   []byte
	version string
	expires time.Time // the zero time: never
}

// stands reports whether the record exists and has not expired.
func (r record) stands(now time.Time) bool {
	return r.version != "" && (r.expires.IsZero() || now.Before(r.expires))
}

// records is a client's view of the store's records.
type records struct{ client *Engine }

// Get returns a record; see [driver.Records].
func (r records) Get(ctx context.Context, key string) (found driver.Record, err error) {
	if err := driver.CheckName(key); err != nil {
		return found, err
	}
	found.Key = key
	err = r.call(ctx, func(now time.Time) error {
		if rec := r.client.store.records[key]; rec.stands(now) {
			found.Value, found.Version = bytes.Clone(rec.value), rec.version
		}
		return nil
	})
	return found, err
}

// Swap replaces a record; see [driver.Records].
func (r records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (next string, err error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	err = r.call(ctx, func(now time.Time) error {
		s := r.client.store
		old := s.records[key]
		if !old.stands(now) {
			old = record{}
		}
		if old.version != version {
			return driver.ErrConflict
		}
		s.swaps++
		next = strconv.FormatUint(s.swaps, 10)
		rec := record{value: bytes.Clone(value), version: next}
		if ttl > 0 {
			rec.expires = now.Add(ttl)
		}
		s.records[key] = rec
		s.forget(now)
		close(s.swapped)
		s.swapped = make(chan struct{})
		return nil
	})
	return next, err
}

// Await returns a record once its version differs from the given one; see [driver.Awaiter].
func (r records) Await(ctx context.Context, key, version string) (driver.Record, error) {
	for {
		var swapped chan struct{}
		var expires time.Time
		r.client.store.do(func(time.Time) { swapped, expires = r.client.store.swapped, r.client.store.records[key].expires })
		found, err := r.Get(ctx, key)
		if err != nil || found.Version != version {
			return found, err
		}
		life := time.Hour
		if found.Version != "" && !expires.IsZero() {
			life = time.Until(expires)
		}
		if !retry.Nap(ctx, max(life, 1), swapped) {
			return driver.Record{}, ctx.Err()
		}
	}
}

// List returns the records whose keys have a prefix; see [driver.Records].
func (r records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	err = r.call(ctx, func(now time.Time) error {
		for key, rec := range r.client.store.records {
			if rec.stands(now) && strings.HasPrefix(key, prefix) {
				list = append(list, driver.Record{Key: key, Value: bytes.Clone(rec.value), Version: rec.version})
			}
		}
		return nil
	})
	sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list, err
}

// Clock returns the time of this process; see [driver.Records].
func (r records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	err = r.call(ctx, func(now time.Time) error {
		earliest, latest = now, now
		return nil
	})
	return earliest, latest, err
}

// call runs f as one call of the client, unless ctx has ended.
func (r records) call(ctx context.Context, f func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.client.call(ctx, f)
}

// forget deletes expired records among a few that are chosen at random, since Go ranges over maps
// in random order. So each Swap costs the same, however many have expired.
func (s *store) forget(now time.Time) {
	looks := 3
	for key, rec := range s.records {
		if !rec.stands(now) {
			delete(s.records, key)
		}
		if looks--; looks == 0 {
			return
		}
	}
}
