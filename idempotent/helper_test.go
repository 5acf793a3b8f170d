package idempotent_test

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

const lease = time.Minute // the TTL of the locks

// bubble runs a test in virtual time, on a new store in memory.
func bubble(t *testing.T, f func(t *testing.T, engine *memlock.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memlock.New(nil)) })
}

// jobs makes a store of jobs for another client of an engine.
func jobs(e *memlock.Engine, cfg idempotent.Config) *idempotent.Store {
	c := e.Client()
	return over(c, c.Records(), &cfg)
}

// over makes a store of jobs on the locks of an engine and on records.
func over(e driver.Engine, r driver.Records, cfg *idempotent.Config) *idempotent.Store {
	return idempotent.New(fencelock.New(e, nil).With(fencelock.Options{TTL: lease}), r, cfg)
}

// newStore makes a store of jobs in a memory of its own.
func newStore(cfg *idempotent.Config) *idempotent.Store {
	e := memlock.New(nil)
	return over(e, e.Records(), cfg)
}

// counted returns a job that counts its runs and returns which it was.
func counted(runs *atomic.Int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return runs.Add(1), nil }
}

// answer is what Do has returned.
type answer struct {
	value int64
	err   error
}

// start calls Do in a goroutine of its own.
func start(ctx context.Context, s *idempotent.Store, key string, fn func(context.Context) (int64, error)) <-chan answer {
	c := make(chan answer, 1)
	go func() { // ends with Do
		value, err := idempotent.Do(ctx, s, key, fn)
		c <- answer{value, err}
	}()
	return c
}

// faulty is a record store that loses answers, or is cut off.
type faulty struct {
	driver.Records
	lose func() bool // decides about the answer of each swap that was carried out
	cut  atomic.Bool
	why  error // what it says then; nil is ErrUnavailable
}

func (f *faulty) refusal() error { return cmp.Or(f.why, driver.ErrUnavailable) }

func (f *faulty) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if f.cut.Load() {
		return "", f.refusal()
	}
	next, err := f.Records.Swap(ctx, key, value, version, ttl)
	if err == nil && f.lose != nil && f.lose() {
		return "", driver.ErrUnavailable
	}
	return next, err
}

func (f *faulty) Get(ctx context.Context, key string) (driver.Record, error) {
	if f.cut.Load() {
		return driver.Record{}, f.refusal()
	}
	return f.Records.Get(ctx, key)
}
