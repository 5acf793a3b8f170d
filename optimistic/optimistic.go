// Package optimistic updates records that several processes change, without a lock: it reads a
// record, computes a new value, and writes it if the record has not changed since
// (compare-and-swap). Otherwise it starts over.
//
//	stock := optimistic.New(engine.Records(), nil)
//	_, err := stock.Update(ctx, "stock:42", func(ctx context.Context, old []byte) ([]byte, error) {
//		return takeOne(old) // may run several times
//	})
//
// No update is lost, even if processes are paused or die: after a long pause, a writer finds that
// the version it has read is out of date. This is sufficient for an update that changes only its
// record. If it has other effects, use a lock or package fence, because the function may run
// several times.
//
// # Many writers
//
// After a conflict an update pauses for a short random time, which doubles, and starts over. If
// many writers change one record, most attempts fail. Therefore, with Config.Locks, an update takes
// a lock after Config.Promote conflicts and continues under it. While several updates want that
// lock, updates of the key by the same Store take it from the start. The writers then take turns,
// in the order of the lock's queue. The lock only improves speed: if it is lost or cannot be
// acquired, the update continues without it.
//
// # Unknown outcomes
//
// If an update fails with fencelock.ErrUnavailable, it may still have been carried out, because the
// answer may have been lost. It is not retried, since it could then be applied twice. Read the
// record to find out. An update that stores in the record which request it was for can be retried
// safely.
//
// # Tables
//
// A row of your own table with a column for its version works in the same way: see [Retry] and
// [Changed]. [Tx] repeats transactions that the database refuses. Package optimisticpgx has both
// for pgx.
package optimistic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of a Store. The zero value is ready to use.
type Config struct {
	// TTL is how long a record is stored after its last update. 0, the default, means for ever.
	TTL time.Duration

	// Locks creates the locks for updates with many conflicts. All processes that update the same
	// records should use one on the same engine. nil, the default, means no locks.
	Locks *fencelock.Locker

	// Promote is the number of conflicts after which an update takes a lock. 0 means the default,
	// 5. It is ignored without Locks.
	Promote int
}

const (
	defaultPromote = 5
	firstPause     = time.Millisecond
	lastPause      = 100 * time.Millisecond
	hotFor         = time.Second // how long updates of a contended key take the lock from the start
	maxHot         = 1000        // the maximum number of keys in Store.hot
)

// prefix separates the records and locks from those of the caller and of other packages.
const prefix = "optimistic/"

// Store updates records of one engine. The record of a key is stored under "optimistic/" plus the
// key, so a key has at most 501 bytes. It is safe for concurrent use and need not be closed.
type Store struct {
	records driver.Records
	cfg     Config

	mu  sync.Mutex           // guards hot
	hot map[string]time.Time // the contended keys, with the time of their last contention
}

// New returns a Store on the records of an engine, such as engine.Records(). It does no I/O. cfg
// may be nil.
func New(records fencelock.Records, cfg *Config) *Store {
	s := &Store{records: records, hot: map[string]time.Time{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Promote = cmp.Or(s.cfg.Promote, defaultPromote)
	return s
}

// Result describes an update.
type Result struct {
	Value    []byte // the stored value
	Tries    int    // how often fn ran
	Promoted bool   // whether the update held the lock
}

// Update replaces the value of key by the result of fn, and returns after it is stored. fn gets the
// current value, or nil if there is no record. It may run several times and must not keep or modify
// old. If fn returns an error, nothing is changed and Update returns that error. ctx bounds the
// whole update.
func (s *Store) Update(ctx context.Context, key string, fn func(ctx context.Context, old []byte) ([]byte, error)) (Result, error) {
	if err := driver.CheckName(prefix + key); err != nil {
		return Result{}, err
	}
	u := &update{Store: s, key: key, fn: fn}
	err := u.run(ctx)
	if err != nil {
		return Result{Tries: u.result.Tries, Promoted: u.result.Promoted}, err
	}
	return u.result, nil
}

// Get returns the value of key. ok is false if there is none.
func (s *Store) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	rec, err := s.records.Get(ctx, prefix+key)
	return rec.Value, rec.Version != "", err
}

// update is one call of Update in progress. It is used by one goroutine.
type update struct {
	*Store
	key    string
	fn     func(context.Context, []byte) ([]byte, error)
	result Result
}

// run makes attempts without the lock, unless there is too much contention.
func (u *update) run(ctx context.Context) error {
	if u.cfg.Locks == nil {
		_, err := u.retryConflicts(ctx, 0)
		return err
	}
	if !u.isHot() {
		if more, err := u.retryConflicts(ctx, u.cfg.Promote); !more {
			return err
		}
		u.heat()
	}
	return u.promote(ctx)
}

// promote continues under the lock, or without it if it cannot be acquired. The attempts do not
// need the lock, so its loss does not end them.
func (u *update) promote(ctx context.Context) error {
	var done error
	locked := func(context.Context) error {
		u.result.Promoted = true
		_, done = u.retryConflicts(ctx, 0)
		return nil
	}
	err := u.cfg.Locks.TryDo(ctx, prefix+u.key, locked)
	if !u.result.Promoted && errors.Is(err, driver.ErrHeld) {
		u.heat() // others also want the lock
		err = u.cfg.Locks.Do(ctx, prefix+u.key, locked)
	}
	switch {
	case u.result.Promoted:
		return done
	case ctx.Err() != nil:
		return err
	}
	_, err = u.retryConflicts(ctx, 0)
	return err
}

// retryConflicts makes attempts until the update is stored, ctx ends, or there were limit
// conflicts; 0 means no maximum. more is true if the last attempt was a conflict and ctx has not
// ended.
func (u *update) retryConflicts(ctx context.Context, limit int) (more bool, err error) {
	pause := retry.NewBackoff(firstPause, lastPause)
	for n := 1; ; n++ {
		conflict, err := u.try(ctx)
		switch {
		case !conflict:
			return false, err
		case n == limit && ctx.Err() == nil:
			return true, err
		case !pause.Wait(ctx):
			return false, fmt.Errorf("%q: %w; gave up after %d attempts: %w", u.key, err, u.result.Tries, ctx.Err())
		}
	}
}

// try is one attempt.
func (u *update) try(ctx context.Context) (conflict bool, err error) {
	rec, err := u.records.Get(ctx, prefix+u.key)
	if err != nil {
		return false, err
	}
	old := rec.Value
	switch {
	case rec.Version == "":
		old = nil
	case old == nil:
		old = []byte{}
	}
	u.result.Tries++
	value, err := u.fn(ctx, old)
	if err != nil {
		return false, err
	}
	_, err = u.records.Swap(ctx, prefix+u.key, value, rec.Version, u.cfg.TTL)
	if err == nil {
		u.result.Value = value
	}
	return errors.Is(err, driver.ErrConflict), err
}

// isHot reports whether the key was contended recently.
func (u *update) isHot() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, ok := u.hot[u.key]
	if ok && time.Since(since) > hotFor {
		delete(u.hot, u.key)
		return false
	}
	return ok
}

// heat records that the key is contended.
func (u *update) heat() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.hot) >= maxHot {
		clear(u.hot)
	}
	u.hot[u.key] = time.Now()
}
