package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// crowd lets callers of one key, who share some limiters and come at different times, ask for a
// time, each with the default timeout. It returns how many events they were granted.
func crowd(t *testing.T, limiters []*ratelimit.Limiter, last time.Duration, failed func(err error)) (granted int64) {
	t.Helper()
	var sum atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for i := range 60 {
		callers.Go(func() { // ends when the time is over
			time.Sleep(time.Duration(i) * 7 * ms)
			for time.Since(begun) < last {
				got, err := limiters[i%len(limiters)].Allow(t.Context(), "k")
				if err == nil {
					err = got.Err
				}
				if err != nil {
					failed(err)
				} else {
					sum.Add(int64(got.Granted))
				}
				time.Sleep(time.Duration(1+i%7*31) * ms)
			}
		})
	}
	callers.Wait()
	return sum.Load()
}

// TestSlowRecordsAreNoOutage: sixty callers of a key, in three processes, on a record store that takes
// 0.125 s for each request, so that a take needs half of the timeout. The time that a caller
// spends behind others, and behind conflicts, is not time in which the records have not answered.
// Nobody is granted more than there is.
func TestSlowRecordsAreNoOutage(t *testing.T) {
	t.Parallel()
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
		for _, processes := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				records := memlock.New(nil).Records()
				limit := ratelimit.PerSecond(300)
				var limiters []*ratelimit.Limiter
				for range processes {
					rates := ratelimit.OnRecords(&busy{Records: records, takes: 125 * ms})
					limiters = append(limiters, ratelimit.New(rates, "test", limit, &ratelimit.Config{Down: policy}))
				}
				begun := time.Now()
				granted := crowd(t, limiters, 30*time.Second, func(err error) { t.Errorf("policy %d, after %v: %v", policy, time.Since(begun), err) })
				if allowed := int64(limit.Burst) + int64(time.Since(begun).Seconds()*300); granted > allowed || granted == 0 {
					t.Errorf("policy %d, %d processes: %d granted, %d allowed", policy, processes, granted, allowed)
				}
			})
		}
	}
}

// hanging is a record store that answers until it hangs.
type hanging struct {
	driver.Records
	hangs atomic.Bool
}

func (h *hanging) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	select {
	case <-time.After(10 * ms):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if h.hangs.Load() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return h.Records.Swap(ctx, key, value, version, ttl)
}

// TestRecordsThatBeginToHang: a crowd that had answers before the records hung finds out, each
// caller within three timeouts: one in which there was an answer still, one in which the
// record was found changed since then, and one in which there was nothing.
func TestRecordsThatBeginToHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{Records: memlock.New(nil).Records()}
		l := ratelimit.New(ratelimit.OnRecords(h), "test", ratelimit.PerSecond(300), nil)
		time.AfterFunc(5*time.Second, func() { h.hangs.Store(true) })
		var down atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for i := range 60 {
			callers.Go(func() { // ends when the time is over
				time.Sleep(time.Duration(i) * 7 * ms)
				for ctx.Err() == nil {
					asked := time.Now()
					_, err := l.Allow(ctx, "k")
					if errors.Is(err, driver.ErrUnavailable) {
						down.Add(1)
					}
					if took := time.Since(asked); took > 3100*ms {
						t.Errorf("caller %d waited for %v: %v", i, took, err)
						return
					}
					time.Sleep(time.Duration(1+i%7*31) * ms)
				}
			})
		}
		callers.Wait()
		if down.Load() < 60 {
			t.Errorf("%d calls found the records down", down.Load())
		}
	})
}
