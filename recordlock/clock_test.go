package recordlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// slowClock are records that report changes, and whose clock takes a while to read.
type slowClock struct {
	driver.Awaiter
	takes time.Duration
	fails atomic.Bool
}

func (s *slowClock) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	time.Sleep(s.takes)
	if s.fails.Load() {
		return earliest, latest, driver.ErrUnavailable
	}
	return s.Awaiter.Clock(ctx)
}

// The first requests of a process for several names are granted as soon as one of them has read the
// store's clock.
func TestFirstRequestsShareTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := recordlock.New(&slowClock{Awaiter: memlock.New(nil).Records().(driver.Awaiter), takes: 50 * time.Millisecond}, nil)
		defer e.Close()
		begun, errs := time.Now(), make(chan error)
		for _, name := range []string{"a", "b", "c"} {
			go func() { // ends when the request is answered
				req := request()
				req.Name = name
				_, err := e.Acquire(t.Context(), req)
				errs <- err
			}()
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 300*time.Millisecond {
			t.Errorf("the requests took %v", took)
		}
	})
}

// A request that waits for the store's clock is granted soon after that can be read again.
func TestClockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowClock{Awaiter: memlock.New(nil).Records().(driver.Awaiter)}
		store.fails.Store(true)
		e := recordlock.New(store, nil)
		defer e.Close()
		time.AfterFunc(5*time.Second, func() { store.fails.Store(false) })
		begun := time.Now()
		_, err := e.Acquire(t.Context(), waiting())
		if took := time.Since(begun); err != nil || took > 7*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A break issues a token, so it waits while the store's clock cannot be read. The other holders of its
// process are renewed.
func TestBreakWithoutTheClock(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		req := request()
		req.Mode = driver.Shared
		kept, broken := s.acquire(e, req), s.acquire(e, req)
		l.set(func(l *link) { l.blind = true })
		renew := func(renewing time.Duration, grants ...driver.Grant) {
			for begun := time.Now(); time.Since(begun) < renewing; time.Sleep(ttl / 3) {
				for _, g := range grants {
					ctx, cancel := contextFor(s, ttl/4)
					s.ok(e.Renew(ctx, []driver.Lease{lease(g)})[0])
					cancel()
				}
			}
		}
		renew(5*time.Minute, kept, broken) // the last reading is too old then
		ctx, cancel := contextFor(s, time.Minute)
		defer cancel()
		result := make(chan error, 1)
		end := func() { // ends with ctx
			_, err := e.BreakOwner(ctx, name, broken.Owner, "maintenance")
			result <- err
		}
		go end()
		renew(2*time.Minute, kept, broken)
		if err := <-result; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		ctx, cancel = contextFor(s, time.Minute)
		defer cancel()
		go end()
		renew(ttl, kept, broken)
		l.set(func(l *link) { l.blind = false })
		s.ok(<-result)
		renew(ttl, kept)
	})
}

// faraway are records whose clock takes long to read, and is not read after the end of a context.
type faraway struct{ driver.Records }

const far = 100 * time.Millisecond

func (f faraway) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if !retry.Sleep(ctx, far) {
		return earliest, latest, ctx.Err()
	}
	return f.Records.Clock(ctx)
}

// The store's clock is read while requests come and go, each shorter than the reading. None but the first
// waits for it.
func TestClockIsReadBehindShortRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{t, memlock.New(nil), true}
		e := recordlock.New(polled{faraway{s.store.Records()}}, nil)
		defer e.Close()
		s.acquire(e, waiting())
		for i := range 600 {
			req := request()
			req.Name = fmt.Sprint(i)
			begun := time.Now()
			ctx, cancel := contextFor(s, far/2)
			if _, err := e.Acquire(ctx, req); err != nil || time.Since(begun) >= far {
				t.Fatalf("request %d: %v after %v", i, err, time.Since(begun))
			}
			cancel()
			time.Sleep(time.Second)
		}
	})
}
