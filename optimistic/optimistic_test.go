package optimistic_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/optimistic"
)

// increment adds 1.
func increment(_ context.Context, old []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(old))
	if old == nil {
		n, err = 0, nil
	}
	return strconv.AppendInt(nil, int64(n)+1, 10), err
}

// rivals is a record store where somebody else writes before each of the next few swaps.
type rivals struct {
	driver.Records
	left int
	lose bool // the answers of swaps
}

func (r *rivals) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if r.left > 0 {
		r.left--
		if _, err := r.Records.Swap(ctx, key, []byte("100"), version, 0); err != nil {
			return "", err
		}
	}
	next, err := r.Records.Swap(ctx, key, value, version, ttl)
	if err == nil && r.lose {
		return "", driver.ErrUnavailable
	}
	return next, err
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rivals{Records: memlock.New(nil).Records()}
		s := optimistic.New(r, &optimistic.Config{TTL: time.Hour})
		got, err := s.Update(t.Context(), "a", increment)
		if err != nil || string(got.Value) != "1" || got.Tries != 1 || got.Promoted {
			t.Errorf("a first update: %+v, %v", got, err)
		}
		r.left = 30
		got, err = s.Update(t.Context(), "a", increment)
		if err != nil || string(got.Value) != "101" || got.Tries != 31 || got.Promoted {
			t.Errorf("an update with 30 conflicts: %+v, %v", got, err)
		}
		time.Sleep(time.Hour)
		if value, ok, err := s.Get(t.Context(), "a"); ok || err != nil {
			t.Errorf("after its TTL: %q, %v", value, err)
		}
	})
}

// TestUpdateThatFails: an error of fn, an engine that does not answer and a context that
// ends, end the update, and change nothing.
func TestUpdateThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rivals{Records: memlock.New(nil).Records()}
		s := optimistic.New(r, nil)
		for _, own := range []error{errors.New("sold out"), driver.ErrConflict} {
			calls := 0
			_, err := s.Update(t.Context(), "a", func(context.Context, []byte) ([]byte, error) {
				calls++
				return []byte("no"), own
			})
			if !errors.Is(err, own) || calls != 1 {
				t.Errorf("fn failed with %v: got %v after %d calls", own, err, calls)
			}
		}
		r.left = 1 << 30
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.Update(ctx, "a", increment)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrConflict) || !strings.Contains(err.Error(), "gave up after") {
			t.Errorf("conflicts until the context ended: %v", err)
		}
		_, err = s.Update(ctx, "a", increment)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// TestUpdateOfUnknownOutcome: it may have been stored, so it is not made again.
func TestUpdateOfUnknownOutcome(t *testing.T) {
	r := &rivals{Records: memlock.New(nil).Records(), lose: true}
	got, err := optimistic.New(r, nil).Update(t.Context(), "a", increment)
	if !errors.Is(err, driver.ErrUnavailable) || got.Tries != 1 {
		t.Errorf("got %+v, %v; want one try and ErrUnavailable", got, err)
	}
	if rec, err := r.Get(t.Context(), "optimistic/a"); err != nil || string(rec.Value) != "1" {
		t.Errorf("stored is %q, %v", rec.Value, err)
	}
}

// TestPromotion: after so many conflicts an update goes on under the lock, others of that
// key begin with it for a while, and others of other keys do not. The loss of the
// lock loses no update.
func TestPromotion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		locks := fencelock.New(engine, nil)
		r := &rivals{Records: engine.Records()}
		s := optimistic.New(r, &optimistic.Config{Locks: locks, Promote: 3})
		update := func(key string, conflicts int, promoted bool) {
			t.Helper()
			r.left = conflicts
			got, err := s.Update(t.Context(), key, increment)
			if err != nil || got.Promoted != promoted || got.Tries != conflicts+1 {
				t.Errorf("%q with %d conflicts: %+v, %v; want promoted %v", key, conflicts, got, err, promoted)
			}
		}
		update("a", 2, false)
		update("a", 3, true)
		update("a", 0, true)
		update("b", 0, false)
		time.Sleep(2 * time.Second)
		update("a", 0, false)
		r.left = 3
		got, err := s.Update(t.Context(), "a", func(ctx context.Context, old []byte) ([]byte, error) {
			if list, err := engine.List(ctx, driver.Query{}); err != nil || len(list) > 1 {
				t.Errorf("locks %+v, %v", list, err)
			} else if len(list) == 1 {
				engine.Lose(list[0].Name)
			}
			return increment(ctx, old)
		})
		if err != nil || !got.Promoted {
			t.Errorf("an update whose lock was lost: %+v, %v", got, err)
		}
		if _, err := s.Update(t.Context(), strings.Repeat("n", 512), increment); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a key too long for the name of a lock: %v", err)
		}
	})
}

// TestUpdateWithoutItsLock: the lock is for speed alone, so an update that cannot have it
// goes on without; unless its context has ended.
func TestUpdateWithoutItsLock(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*testing.T, *memlock.Engine)
		wait  time.Duration
		limit time.Duration // of the update; 0 is none
	}{
		"no engine":         {func(_ *testing.T, e *memlock.Engine) { e.Refuse(errors.New("no route")) }, 0, 0},
		"held for too long": {func(t *testing.T, e *memlock.Engine) { hold(t, e, "optimistic/a") }, time.Second, 0},
		"no time to wait":   {func(t *testing.T, e *memlock.Engine) { hold(t, e, "optimistic/a") }, 0, time.Minute},
		"a silent engine":   {func(_ *testing.T, e *memlock.Engine) { e.Hang() }, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			locking := memlock.New(nil)
			c.spoil(t, locking)
			locks := fencelock.New(locking, nil).With(fencelock.Options{Wait: c.wait})
			r := &rivals{Records: memlock.New(nil).Records(), left: 7}
			ctx := t.Context()
			if c.limit > 0 {
				limited, cancel := context.WithTimeout(ctx, c.limit)
				defer cancel()
				ctx = limited
			}
			got, err := optimistic.New(r, &optimistic.Config{Locks: locks, Promote: 5}).Update(ctx, "a", increment)
			switch {
			case c.limit > 0 && (!errors.Is(err, context.DeadlineExceeded) || got.Tries != 5):
				t.Errorf("%s: %+v, %v; want an error after 5 tries", name, got, err)
			case c.limit == 0 && (err != nil || string(got.Value) != "101" || got.Tries != 8 || got.Promoted):
				t.Errorf("%s: %+v, %v; want 101 after 8 tries without the lock", name, got, err)
			}
		})
	}
}

// hold takes a lock for somebody else.
func hold(t *testing.T, e *memlock.Engine, name string) {
	t.Helper()
	if _, err := fencelock.New(e.Client(), nil).TryAcquire(t.Context(), name); err != nil {
		t.Error(err)
	}
}

// ending is a record store whose swaps conflict as their context ends.
type ending struct {
	driver.Records
	end context.CancelFunc
}

func (e ending) Swap(context.Context, string, []byte, string, time.Duration) (string, error) {
	e.end()
	return "", driver.ErrConflict
}

// TestContextThatEndsInTheLastTry: the error says so, whatever the try came to.
func TestContextThatEndsInTheLastTry(t *testing.T) {
	engine := memlock.New(nil)
	for _, promote := range []int{1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		s := optimistic.New(ending{engine.Records(), cancel}, &optimistic.Config{Locks: fencelock.New(engine, nil), Promote: promote})
		got, err := s.Update(ctx, "a", increment)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrConflict) || got.Tries != 1 || got.Promoted {
			t.Errorf("promoted after %d: %+v, %v; want the conflict and the error of the context", promote, got, err)
		}
	}
}

// TestEmptyIsNotNothing: an update is told nil only if there is no record.
func TestEmptyIsNotNothing(t *testing.T) {
	s := optimistic.New(memlock.New(nil).Records(), nil)
	for _, empty := range []bool{false, true} {
		_, err := s.Update(t.Context(), "a", func(_ context.Context, old []byte) ([]byte, error) {
			if len(old) > 0 || (old != nil) != empty {
				t.Errorf("%#v, with a record: %v", old, empty)
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// slow is set for tests of full size.
var slow = os.Getenv("FENCELOCK_SLOW") != ""

// TestNoUpdateIsLost: many clients add to one record, and the sum is right, with
// promotion and without.
func TestNoUpdateIsLost(t *testing.T) {
	clients, each := 32, 15
	if slow {
		clients, each = 64, 100
	}
	most := map[bool]int{}
	for _, promoted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			most[promoted] = count(t, memory(), clients, each, promoted)
		})
	}
	t.Logf("most tries of one update: %d with promotion, %d without", most[true], most[false])
}

// memory makes clients of one store in memory, each of whose calls takes a while.
func memory() func() driver.Engine {
	store := memlock.New(nil)
	return func() driver.Engine {
		e := store.Client()
		e.Delay(100 * time.Microsecond)
		return e
	}
}

// count makes clients that add 1 to a record, each so many times, and returns the most
// tries that any update needed.
func count(t *testing.T, connect func() driver.Engine, clients, each int, promote bool) (most int) {
	t.Helper()
	var mu sync.Mutex // guards most, unknown
	unknown := 0      // updates that may have been carried out
	var all sync.WaitGroup
	var records driver.Records
	for range clients {
		e := connect()
		var cfg optimistic.Config
		if promote {
			cfg.Locks = fencelock.New(e, nil)
		}
		records = e.(driver.RecordKeeper).Records()
		s := optimistic.New(records, &cfg)
		all.Go(func() { // ends when it has added all
			for range each {
				got, err := s.Update(t.Context(), "sum", increment)
				mu.Lock()
				most = max(most, got.Tries)
				if errors.Is(err, driver.ErrUnavailable) {
					unknown++
					err = nil
				}
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	rec, err := records.Get(t.Context(), "optimistic/sum")
	sum, errSum := strconv.Atoi(string(rec.Value))
	if all := clients * each; err != nil || errSum != nil || sum > all || sum < all-unknown {
		t.Errorf("the sum is %q, %v; want %d, with %d of unknown outcome", rec.Value, err, all, unknown)
	}
	return most
}
