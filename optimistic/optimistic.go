// Package optimistic changes records that several processes change, without a lock:
// read, compute, and write if nobody has written since; otherwise once more.
//
//	stock := optimistic.New(engine.Records(), nil)
//	_, err := stock.Update(ctx, "stock:42", func(ctx context.Context, old []byte) ([]byte, error) {
//		return takeOne(old) // may run several times
//	})
//
// No update is lost, whatever freezes or dies: a writer that slept for a week finds that
// the version it read has gone. An update that changes nothing but its record needs no
// more than that. One that does other things besides wants a lock, or package fence: fn
// may run many times for one update.
//
// # Many writers
//
// An update that conflicts waits for a short, random time, which doubles, and begins
// anew. Where many change one record, most tries are for nothing, and an unlucky writer
// may need very many. So an update that has had Config.Promote conflicts takes a lock,
// if Config.Locks makes them, and goes on under it; and as long as the lock is wanted
// by several, the updates of that key by the same Store begin with it. Writers then take
// turns, in the order of the lock's queue. The lock is for speed alone: if it is lost, no
// update is, and an update that cannot have it goes on without.
//
// # An outcome that nobody knows
//
// An update that fails with fencelock.ErrUnavailable may have been carried out, since the
// answer may have been lost. It is not made again: that could count twice. Who must know
// reads the record; an update that notes in the record which request it was for can be
// made again safely.
//
// # Tables
//
// A row of the user's own with a column for its version is such a record too. See [Retry]
// and [Changed], and [Tx] for transactions that the database itself refuses; package
// optimisticpgx has them for pgx.
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

// Config tunes a Store. The zero value is useful.
type Config struct {
	// TTL is how long a record stays after its last update. 0, the default, is for
	// ever.
	TTL time.Duration

	// Locks makes the locks of updates with many conflicts. Every process that
	// updates the same records should have one on the same engine. nil, the
	// default, never takes a lock.
	Locks *fencelock.Locker

	// Promote is after how many conflicts an update takes a lock. 0 means the
	// default, 5. It is ignored without Locks.
	Promote int
}

const (
	defaultPromote = 5
	firstPause     = time.Millisecond
	lastPause      = 100 * time.Millisecond
	hotFor         = time.Second // how long updates begin with the lock after many met
	maxHot         = 1000        // how many keys are remembered so
)

// prefix begins the keys of the records and the names of the locks, so that they are neither
// the caller's own nor those of other recipes.
const prefix = "optimistic/"

// Store updates records of one engine. The record of a key is kept under
// "optimistic/" and the key, so a key may have 501 bytes. It is safe for concurrent use and needs
// no closing.
type Store struct {
	records driver.Records
	cfg     Config

	mu  sync.Mutex           // guards hot
	hot map[string]time.Time // when many were last seen to update a key at once
}

// New returns a Store on the records of an engine, such as engine.Records(). It does no
// I/O; cfg may be nil.
func New(records fencelock.Records, cfg *Config) *Store {
	s := &Store{records: records, hot: map[string]time.Time{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Promote = cmp.Or(s.cfg.Promote, defaultPromote)
	return s
}

// Result is what an update came to.
type Result struct {
	Value    []byte // what is stored now
	Tries    int    // how often fn ran
	Promoted bool   // whether the update had the lock
}

// Update replaces the value of key by what fn makes of it, and returns when that is
// stored. fn gets nil where there is no record, and only there; it may run several times, each time with
// what is stored then, and must not keep or change old. An error of fn ends the
// update, changes nothing and is returned as it is. ctx bounds the whole update.
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

// Get returns the value of key; ok is false if there is none.
func (s *Store) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	rec, err := s.records.Get(ctx, prefix+key)
	return rec.Value, rec.Version != "", err
}

// update is one Update under way. One goroutine uses it.
type update struct {
	*Store
	key    string
	fn     func(context.Context, []byte) ([]byte, error)
	result Result
}

// run tries without the lock as long as that goes well enough.
func (u *update) run(ctx context.Context) error {
	if u.cfg.Locks == nil {
		_, err := u.insist(ctx, 0)
		return err
	}
	if !u.isHot() {
		if more, err := u.insist(ctx, u.cfg.Promote); !more {
			return err
		}
		u.heat()
	}
	return u.promote(ctx)
}

// promote goes on under the lock, or without it if it is not to be had. No step needs the
// lock, so its loss ends nothing.
func (u *update) promote(ctx context.Context) error {
	var done error
	locked := func(context.Context) error {
		u.result.Promoted = true
		_, done = u.insist(ctx, 0)
		return nil
	}
	err := u.cfg.Locks.TryDo(ctx, prefix+u.key, locked)
	if !u.result.Promoted && errors.Is(err, driver.ErrHeld) {
		u.heat() // others want it too
		err = u.cfg.Locks.Do(ctx, prefix+u.key, locked)
	}
	switch {
	case u.result.Promoted:
		return done
	case ctx.Err() != nil:
		return err
	}
	_, err = u.insist(ctx, 0)
	return err
}

// insist tries until the update is stored, or ctx ends, or after most conflicts, 0 for
// never. more says that the last of these was a conflict, and that ctx goes on.
func (u *update) insist(ctx context.Context, most int) (more bool, err error) {
	pause := retry.NewBackoff(firstPause, lastPause)
	for n := 1; ; n++ {
		conflict, err := u.try(ctx)
		switch {
		case !conflict:
			return false, err
		case n == most && ctx.Err() == nil:
			return true, err
		case !pause.Wait(ctx):
			return false, fmt.Errorf("%q: %w; gave up after %d tries: %w", u.key, err, u.result.Tries, ctx.Err())
		}
	}
}

// try is one try.
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

// isHot reports whether many updated the key a moment ago.
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

// heat notes that many update the key now.
func (u *update) heat() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.hot) >= maxHot {
		clear(u.hot)
	}
	u.hot[u.key] = time.Now()
}
