package recordlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/recordlock"
)

// A holder that is cut off from the store loses its lock before another process is granted it.
func TestPartition(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		held, err := fencelock.New(e, nil).With(fencelock.Options{TTL: ttl}).Acquire(s.Context(), name)
		s.ok(err)
		time.Sleep(ttl)
		l.set(func(l *link) {
			l.down = true
			l.swap = func(func() error) error { return driver.ErrUnavailable }
		})
		other, _ := s.client()
		g := s.acquire(other, waiting())
		verdict.Is(t, "Records: the holder is partitioned from the store", verdict.Safe, verdict.OfHolders(held.Err(), held.Token(), g.Token))
		if held.Context().Err() == nil {
			t.Error("the context of the lock has not ended")
		}
		_ = held.Release()
	})
}

// A frozen holder cannot look. Its lease ends, and a guard must refuse its late write.
func TestFrozenHolder(t *testing.T) {
	play(t, true, func(s scene) {
		holder, _ := s.client()
		first := s.acquire(holder, request()) // and does not renew
		other, _ := s.client()
		second := s.acquire(other, waiting())
		verdict.Is(t, "Records: the holder freezes", verdict.Guarded, verdict.OfHolders(nil, first.Token, second.Token))
		if err := holder.Renew(s.Context(), []driver.Lease{lease(first)})[0]; !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the late renewal: got %v, want ErrNotHeld", err)
		}
	})
}

// The store's clock and the wall clocks are wrong together, so a process that asks once takes a lease
// that still runs.
func TestBothClocksAreWrong(t *testing.T) {
	play(t, true, func(s scene) {
		holder, _ := s.client()
		first := s.acquire(holder, request())
		other, l := s.client()
		l.set(func(l *link) { l.ahead = time.Hour })
		l.set(earlier(time.Hour))
		second := s.acquire(other, request())
		verdict.Is(t, "Records: the clocks of the store and of clients are wrong at the same time, in the same direction",
			verdict.Guarded, verdict.OfHolders(nil, first.Token, second.Token))
	})
}

// The store loses the record of a held lock, or its last change. The next holder has a greater token,
// and the earlier one is notified.
func TestLostRecord(t *testing.T) {
	for what, before := range map[string][]byte{"deleted": nil, "the state before the grant": []byte(`{"format":1,"name":"invoice","last":1}`)} {
		t.Run(what, func(t *testing.T) {
			play(t, true, func(s scene) {
				lost := make(chan error, 1)
				req := request()
				req.OnLost = func(cause error) { lost <- cause }
				holder, _ := s.client()
				first := s.acquire(holder, req)
				records := s.store.Records()
				rec, err := records.Get(s.Context(), key)
				s.ok(err)
				life := time.Duration(0)
				if before == nil {
					life = time.Microsecond
				}
				_, err = records.Swap(s.Context(), key, before, rec.Version, life)
				s.ok(err)
				time.Sleep(time.Millisecond)
				other, _ := s.client()
				second := s.acquire(other, request())
				verdict.Is(s, "Records: the store loses a record, or its last change", verdict.Guarded, verdict.OfHolders(nil, first.Token, second.Token))
				time.Sleep(ttl / 3)
				synctest.Wait()
				select {
				case cause := <-lost:
					if !errors.Is(cause, driver.ErrLost) {
						t.Errorf("got %v, want ErrLost", cause)
					}
				default:
					t.Error("the holder was not notified within a third of its TTL")
				}
			})
		})
	}
}

// While the store is down, requests are refused as unavailable, not as held.
func TestStoreIsDown(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		l.set(func(l *link) { l.down = true })
		_, err := e.Acquire(s.Context(), request())
		verdict.Is(t, "Records: the store cannot be reached", verdict.Refused, verdict.OfError(err))
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// hanging are records whose first Await reports nothing, as on a connection that is dead.
type hanging struct {
	driver.Records
	awaits atomic.Int64
}

func (h *hanging) Await(ctx context.Context, key, version string) (driver.Record, error) {
	if h.awaits.Add(1) == 1 {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return h.Records.(driver.Awaiter).Await(ctx, key, version)
}

// A watch that hangs delays a waiter by some ten seconds. After a minute it is replaced.
func TestHangingWatch(t *testing.T) {
	for waited, late := range map[time.Duration]time.Duration{30 * time.Second: 15 * time.Second, 90 * time.Second: 100 * time.Millisecond} {
		play(t, true, func(s scene) {
			holder, _ := s.client()
			req := request()
			req.TTL = time.Hour
			g := s.acquire(holder, req)
			e := recordlock.New(&hanging{Records: s.store.Records()}, nil)
			s.Cleanup(func() { _ = e.Close() })
			granted := make(chan time.Time, 1)
			go func() { // ends when it is granted
				s.acquire(e, waiting())
				granted <- time.Now()
			}()
			time.Sleep(waited)
			released := time.Now()
			s.ok(holder.Release(s.Context(), lease(g)))
			if took := (<-granted).Sub(released); took > late {
				t.Errorf("after %v, the waiter was granted %v after the release, want %v at most", waited, took, late)
			}
		})
	}
}

// deaf are records that can report no changes. It counts the reads.
type deaf struct {
	driver.Records
	reads atomic.Int64
}

func (d *deaf) Get(ctx context.Context, key string) (driver.Record, error) {
	d.reads.Add(1)
	return d.Records.Get(ctx, key)
}

func (d *deaf) Await(ctx context.Context, key, _ string) (driver.Record, error) {
	_, err := d.Get(ctx, key)
	return driver.Record{}, errors.Join(driver.ErrUnavailable, err)
}

// While no changes are reported, a holder reads as seldom as on a store that never reports any, and a waiter polls.
func TestDeafWatch(t *testing.T) {
	play(t, true, func(s scene) {
		r := &deaf{Records: s.store.Records()}
		e := recordlock.New(r, nil)
		s.Cleanup(func() { _ = e.Close() })
		req := request()
		req.TTL = 20 * time.Second
		g := s.acquire(e, req)
		r.reads.Store(0)
		time.Sleep(5 * time.Second)
		begun := r.reads.Load()
		time.Sleep(10 * time.Second)
		if n := r.reads.Load() - begun; n > 10 {
			t.Errorf("a holder read %d times in 10 s", n)
		}
		released := make(chan time.Time, 1)
		time.AfterFunc(2*time.Second, func() { // ends when it is released
			s.ok(e.Release(s.Context(), lease(g)))
			released <- time.Now()
		})
		other := recordlock.New(r, nil)
		s.Cleanup(func() { _ = other.Close() })
		s.acquire(other, waiting())
		if took := time.Since(<-released); took > time.Second {
			t.Errorf("a waiter was granted after %v", took)
		}
	})
}

// stuck are records of which some never answer, and whose clock may not answer either.
type stuck struct {
	*link
	clock atomic.Bool
}

func (r *stuck) Get(ctx context.Context, key string) (driver.Record, error) {
	if strings.Contains(key, "stuck") {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return r.link.Get(ctx, key)
}

func (r *stuck) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	if r.clock.Load() {
		<-ctx.Done()
		return earliest, latest, ctx.Err()
	}
	return r.link.Clock(ctx)
}

// Requests for other names, or for the store's clock, do not end. They do not delay renewals.
func TestRenewalsBesideStuckRequests(t *testing.T) {
	for what, c := range map[string]struct {
		ttl  time.Duration
		hang func(s scene, e *recordlock.Engine, r *stuck)
	}{
		"names": {3 * time.Second, func(s scene, e *recordlock.Engine, _ *stuck) {
			for i := range 60 {
				req := waiting()
				req.Name = fmt.Sprint("stuck", i)
				go func() { _, _ = e.Acquire(s.Context(), req) }() // ends with the engine
			}
		}},
		"the clock": {500 * time.Millisecond, func(_ scene, _ *recordlock.Engine, r *stuck) { r.clock.Store(true) }},
	} {
		t.Run(what, func(t *testing.T) {
			play(t, true, func(s scene) {
				_, l := s.client()
				r := &stuck{link: l}
				e := recordlock.New(r, nil)
				s.Cleanup(func() { _ = e.Close() })
				req := request()
				req.TTL, req.OnLost = c.ttl, func(err error) { t.Error(err) }
				g := s.acquire(e, req)
				c.hang(s, e, r)
				for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(req.TTL / 3) {
					sent := time.Now()
					s.ok(e.Renew(s.Context(), []driver.Lease{lease(g)})[0])
					if took := time.Since(sent); took > req.TTL/3 {
						t.Fatalf("a renewal took %v", took)
					}
				}
			})
		})
	}
}
