//go:build unix

package idempotent_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/memlock"
)

// onRecords runs f with clients of each engine that keeps records.
func onRecords(t *testing.T, f func(t *testing.T, connect engines.Connect)) {
	t.Helper()
	all := engines.All(30 * time.Second)
	delete(all, "redlock") // which keeps none
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, all[name](t))
		})
	}
}

// recordsOf are the records of another client.
func recordsOf(connect engines.Connect) driver.Records {
	return connect().(driver.RecordKeeper).Records()
}

// begin begins a run of the job a.
func begin(t *testing.T, s *idempotent.Store) *idempotent.Run {
	t.Helper()
	run, err := s.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestLateOutcomeIsRefused: on the records of every engine, a run whose lock went to another run
// stores no outcome, whether that one goes on or is over.
func TestLateOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	onRecords(t, func(t *testing.T, connect engines.Connect) {
		locks := memlock.New(nil)
		client := func() *idempotent.Store { return over(locks, recordsOf(connect), nil) }
		first := begin(t, client())
		locks.Lose("idempotent/a")
		second := begin(t, client())
		locks.Lose("idempotent/a")
		third := begin(t, client())
		if err := first.Complete([]byte("1")); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("while the third runs: %v", err)
		}
		if err := third.Complete([]byte("3")); err != nil {
			t.Errorf("the third: %v", err)
		}
		if err := second.Complete([]byte("2")); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("after the third: %v", err)
		}
		_, err := client().Begin(t.Context(), "a")
		if done, ok := errors.AsType[*idempotent.DoneError](err); !ok || string(done.Result) != "3" {
			t.Errorf("stored is %v", err)
		}
	})
}

// TestManyDuplicates: a thousand calls for one key, by two processes on each engine, all get
// the outcome of the one run. They do not take the lock one after the other.
func TestManyDuplicates(t *testing.T) {
	t.Parallel()
	onRecords(t, func(t *testing.T, connect engines.Connect) {
		const calls, clients = 1000, 2
		var runs, shared, exclusive, waiting atomic.Int64
		tracer := &fencelock.Tracer{
			AcquireWait: func(context.Context, fencelock.TraceAcquireWait) { waiting.Add(1) },
			AcquireEnd: func(_ context.Context, end fencelock.TraceAcquireEnd) {
				switch {
				case end.Err != nil:
				case end.Mode == driver.Shared:
					shared.Add(1)
				default:
					exclusive.Add(1)
				}
			},
		}
		var stores []*idempotent.Store
		for range clients {
			e := connect()
			stores = append(stores, idempotent.New(fencelock.New(e, &fencelock.Config{Tracer: tracer}), e.(driver.RecordKeeper).Records(), nil))
		}
		var all sync.WaitGroup
		var ended atomic.Int64 // when the run has ended
		var asked, last atomic.Int64
		for i := range calls {
			all.Go(func() { // ends with the outcome
				asked.Add(1)
				got, err := idempotent.Do(t.Context(), stores[i%clients], "a", func(context.Context) (int64, error) {
					for asked.Load() < calls || waiting.Load() < clients-1 {
						time.Sleep(time.Millisecond)
					}
					time.Sleep(100 * time.Millisecond) // most of them wait by now
					ended.Store(time.Now().UnixNano())
					return runs.Add(1), nil
				})
				if got != 1 || err != nil {
					t.Errorf("%d, %v; want 1", got, err)
				}
				for now := time.Now().UnixNano(); ; {
					if old := last.Load(); old >= now || last.CompareAndSwap(old, now) {
						break
					}
				}
			})
		}
		all.Wait()
		t.Logf("the last of %d calls was answered %v after the run; %d shared and %d exclusive locks", calls,
			time.Duration(last.Load()-ended.Load()), shared.Load(), exclusive.Load())
		if shared.Load() > 20 || exclusive.Load() > 20 { // a caller may come just when the run ends
			t.Errorf("%d shared and %d exclusive locks for %d calls of %d clients", shared.Load(), exclusive.Load(), calls, clients)
		}
	})
}

// TestLocksOfAnotherEngine: Redlock, which keeps no records, with the records of another engine.
func TestLocksOfAnotherEngine(t *testing.T) {
	t.Parallel()
	all := engines.All(30 * time.Second)
	redlock, files := all["redlock"](t), all["files"](t)
	var answers []<-chan answer
	var runs atomic.Int64
	for range 3 {
		s := idempotent.New(fencelock.New(redlock(), nil), recordsOf(files), nil)
		answers = append(answers, start(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
			if held, ok := fencelock.HeldFrom(ctx); !ok || held.Name != "idempotent/a" {
				t.Errorf("the lock of the run is %+v", held)
			}
			return counted(&runs)(ctx)
		}))
	}
	for _, a := range answers {
		if got := <-a; got.value != 1 || got.err != nil {
			t.Errorf("%d, %v; want 1", got.value, got.err)
		}
	}
}
