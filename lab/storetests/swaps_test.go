//go:build unix

package storetests_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
	"github.com/fencelock/fencelock/recordlock"
)

// swaps are the successful calls of Swap for one key, by the version from which they were made.
type swaps struct {
	mu   sync.Mutex // guards from
	from map[string]string
}

// add reports another success from the same version.
func (s *swaps) add(from, to string, err error) (other string, twice bool) {
	if err != nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	other, twice = s.from[from]
	s.from[from] = to
	return other, twice
}

// swap replaces a record until ctx ends.
func (s *swaps) swap(ctx context.Context, t *testing.T, r driver.Records, key string) {
	for ctx.Err() == nil {
		rec, err := r.Get(ctx, key)
		if err == nil {
			var next string
			next, err = r.Swap(ctx, key, fmt.Append(nil, rand.Uint64()), rec.Version, 0)
			if other, twice := s.add(rec.Version, next, err); twice {
				t.Errorf("%s: version %s was replaced by %s and by %s", key, rec.Version, other, next)
			}
		}
		if err != nil && !errors.Is(err, driver.ErrConflict) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// TestSwapsUnderFaults: of all calls of Swap from one version, one succeeds, whatever happens to the
// members.
func TestSwapsUnderFaults(t *testing.T) {
	length := cmp.Or(*nemesistest.For, 20*time.Second)
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			v := newVictim(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			var work sync.WaitGroup
			var all []*swaps
			for _, key := range []string{"a", "b"} {
				done := &swaps{from: map[string]string{}}
				all = append(all, done)
				for range 3 {
					r := s.open(t, v.cluster, v.part)
					work.Go(func() { done.swap(ctx, t, r, key) }) // ends with ctx
				}
			}
			for ctx.Err() == nil {
				v.disturb(func(string, ...string) func() { return func() {} })
				time.Sleep(rand.N(time.Second))
			}
			work.Wait()
			t.Logf("%d and %d swaps", len(all[0].from), len(all[1].from))
		})
	}
}

// TestNoLossWithoutFaults: a holder is not told that its lock is lost because some member is behind
// the leader.
func TestNoLossWithoutFaults(t *testing.T) {
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			c := s.start(t, 3)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var work sync.WaitGroup
			var holds atomic.Int64
			for range 4 {
				locks := fencelock.New(recordlock.New(s.open(t, c, "part"), nil), nil)
				work.Go(func() { // ends with ctx
					for ctx.Err() == nil {
						err := locks.Do(ctx, "name", func(ctx context.Context) error {
							time.Sleep(rand.N(5 * time.Millisecond))
							return context.Cause(ctx)
						})
						if errors.Is(err, fencelock.ErrLost) {
							t.Error(err)
						}
						holds.Add(1)
					}
				})
			}
			work.Wait()
			t.Logf("%d holds", holds.Load())
		})
	}
}
