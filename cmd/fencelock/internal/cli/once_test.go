//go:build unix

package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/memlock"
)

// aJob is the job of one caller of a key.
func aJob(r driver.Records) *onceJob {
	return &onceJob{records: r, name: "once/a", payload: "p", retention: time.Hour, patience: time.Minute}
}

// beginJob takes the lock and claims the job.
func beginJob(t *testing.T, locks *memlock.Engine, r driver.Records) *onceJob {
	t.Helper()
	lock, err := fencelock.New(locks, nil).TryAcquire(t.Context(), "once/a")
	if err != nil {
		t.Fatal(err)
	}
	j := aJob(r)
	if err := j.claim(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	return j
}

// outcomeOf is what whoever asks for the job gets.
func outcomeOf(t *testing.T, r driver.Records) string {
	t.Helper()
	over, ok := errors.AsType[*overError](aJob(r).over(t.Context()))
	if !ok {
		return "none"
	}
	return string(over.record.stdout)
}

func said(text string) onceRecord { return onceRecord{stdout: []byte(text)} }

// TestLateOutcomeIsRefused: on the records of every engine, a run whose lock went to
// another run completes nothing, whether that one goes on or is over.
func TestLateOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	all := engines.All(30 * time.Second)
	delete(all, "redlock") // which keeps none
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := all[name](t)
			records := func() driver.Records { return connect().(driver.RecordKeeper).Records() }
			locks := memlock.New(nil)
			first := beginJob(t, locks, records())
			locks.Lose("once/a")
			second := beginJob(t, locks, records())
			if err := first.complete(said("first")); !errors.Is(err, fencelock.ErrLost) {
				t.Errorf("while the second runs: %v", err)
			}
			if got := outcomeOf(t, records()); got != "none" {
				t.Errorf("stored is %q", got)
			}
			if err := second.complete(said("second")); err != nil {
				t.Errorf("the second: %v", err)
			}
			if err := first.complete(said("first")); !errors.Is(err, fencelock.ErrLost) {
				t.Errorf("after the second: %v", err)
			}
			if got := outcomeOf(t, records()); got != "second" {
				t.Errorf("stored is %q", got)
			}
		})
	}
}

// TestLateClaimIsRefused: who was stopped between the lock and the claim does not take
// over a run with a greater token.
func TestLateClaimIsRefused(t *testing.T) {
	locks := memlock.New(nil)
	old, err := fencelock.New(locks, nil).TryAcquire(t.Context(), "once/a")
	if err != nil {
		t.Fatal(err)
	}
	locks.Lose("once/a")
	r := locks.Records()
	second := beginJob(t, locks, r)
	if err := aJob(r).claim(t.Context(), old); !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("a late claim: %v", err)
	}
	if err := second.complete(said("second")); err != nil {
		t.Errorf("the run that it came late for: %v", err)
	}
}

// unsure is a record store that loses answers of swaps, or does not make them.
type unsure struct {
	driver.Records
	lose   func() bool // decides about the answer of each swap that was carried out
	silent atomic.Bool
	why    error // what it says then
}

func (u *unsure) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if u.silent.Load() {
		return "", u.why
	}
	next, err := u.Records.Swap(ctx, key, value, version, ttl)
	if err == nil && u.lose != nil && u.lose() {
		err = driver.ErrUnavailable
	}
	return next, err
}

// TestLostAnswersOfOnce: what was stored counts, though nobody was told.
func TestLostAnswersOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, swaps := memlock.New(nil), 0
		r := &unsure{Records: locks.Records(), lose: func() bool { swaps++; return swaps%2 == 1 }}
		if err := beginJob(t, locks, r).complete(said("once")); err != nil {
			t.Error(err)
		}
		if got := outcomeOf(t, r); got != "once" {
			t.Errorf("stored is %q", got)
		}
	})
}

// TestOnceOnTooFewReplicas: swaps fail after they were carried out, since too few replicas have
// them. No run begins so, and no outcome counts as stored.
func TestOnceOnTooFewReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, few := memlock.New(nil), false
		r := &unsure{Records: locks.Records(), lose: func() bool { return few }}
		j := beginJob(t, locks, r)
		few = true
		if err := j.complete(said("once")); !errors.Is(err, driver.ErrUnavailable) || exitCode(err) != exitUnavailable {
			t.Errorf("the outcome: %v", err)
		}
		j.lock.Release()
		lock, err := fencelock.New(locks, nil).TryAcquire(t.Context(), "once/b")
		if err != nil {
			t.Fatal(err)
		}
		other := aJob(r)
		other.name = "once/b"
		if err := other.claim(t.Context(), lock); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("the claim: %v", err)
		}
		lock.Release()
	})
}

// TestOutcomeThatIsNotStored: it is tried for so long, and is ErrUnavailable then.
func TestOutcomeThatIsNotStored(t *testing.T) {
	for _, why := range []error{driver.ErrUnavailable, driver.ErrConfig} {
		synctest.Test(t, func(t *testing.T) {
			for _, back := range []time.Duration{30 * time.Second, time.Hour} {
				locks := memlock.New(nil)
				r := &unsure{Records: locks.Records(), why: why}
				j := beginJob(t, locks, r)
				r.silent.Store(true)
				begun := time.Now()
				timer := time.AfterFunc(back, func() { r.silent.Store(false) })
				err := j.complete(said("once"))
				timer.Stop()
				took := time.Since(begun)
				if back < time.Minute && (err != nil || took < back) || back > time.Minute && (exitCode(err) != exitUnavailable || took != time.Minute) {
					t.Errorf("%v, back after %v: %v after %v", why, back, err, took)
				}
				j.lock.Release()
			}
		})
	}
}

// TestRunOutlivesItsRecord: a run may take longer than its record is kept; its outcome
// counts as long as it has the lock, and not after.
func TestRunOutlivesItsRecord(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			locks := memlock.New(nil)
			j := beginJob(t, locks, locks.Records())
			time.Sleep(leastRunning + time.Hour)
			if lost {
				locks.Lose("once/a")
			}
			if err := j.complete(said("once")); lost != errors.Is(err, fencelock.ErrLost) || !lost && err != nil {
				t.Errorf("lost %v: %v", lost, err)
			}
			j.lock.Release()
		})
	}
}

// TestRecordOfOthers: what is no record of ours is not run over.
func TestRecordOfOthers(t *testing.T) {
	r := memlock.New(nil).Records()
	for _, value := range []string{"", "x", `{"stdout":5}` + "\nabc", `{"stdout":-1}` + "\nabc"} {
		rec, err := r.Get(t.Context(), "once/a")
		if err == nil {
			_, err = r.Swap(t.Context(), "once/a", []byte(value), rec.Version, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := aJob(r).over(t.Context()); !errors.Is(err, driver.ErrConfig) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// losing is a record store that loses a lock in the middle of a read.
type losing struct {
	driver.Records
	gets int
	lose func()
}

func (l *losing) Get(ctx context.Context, key string) (driver.Record, error) {
	if l.gets++; l.gets == 2 { // the first is before the lock, the second under it
		l.lose()
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return l.Records.Get(ctx, key)
}

// TestLockLostBeforeTheClaim: the code is that of a lost lock.
func TestLockLostBeforeTheClaim(t *testing.T) {
	locks := memlock.New(nil)
	r := &losing{Records: locks.Records(), lose: func() { locks.Lose("once/a") }}
	if _, err := (&onceCmd{}).take(t.Context(), fencelock.New(locks, nil), aJob(r)); exitCode(err) != exitLost {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
}
