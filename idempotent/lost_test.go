package idempotent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// TestFrozenRun: a run that is frozen for longer than its lease has lost its context
// before another one begins, and its completion is refused, whatever it is.
func TestFrozenRun(t *testing.T) {
	for _, own := range []error{nil, errors.New("own")} {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			frozen := engine.Client()
			var ctxA context.Context
			var tokenA int64
			a := start(t.Context(), over(frozen, frozen.Records(), nil), "a", func(ctx context.Context) (int64, error) {
				ctxA = ctx
				tokenA, _ = fencelock.TokenFrom(ctx)
				time.Sleep(8 * lease)
				return 1, own
			})
			synctest.Wait()
			frozen.Freeze()
			s := jobs(engine, idempotent.Config{})
			b, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
				if cause := context.Cause(ctxA); !errors.Is(cause, fencelock.ErrLost) {
					t.Errorf("another run has begun, and the context of the first one: %v", cause)
				}
				if token, _ := fencelock.TokenFrom(ctx); token <= tokenA {
					t.Errorf("token %d after %d", token, tokenA)
				}
				return 2, nil
			})
			if b != 2 || err != nil {
				t.Errorf("the run that took over: %d, %v", b, err)
			}
			time.Sleep(5 * lease)
			frozen.Thaw()
			got := <-a
			lost, ok := errors.AsType[*fencelock.LostError](got.err)
			if !ok || lost.Name != "idempotent/a" || lost.Token != tokenA || own != nil && !errors.Is(got.err, own) {
				t.Errorf("the run that was frozen: %+v", got)
			}
			if c, err := idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { return 3, nil }); c != 2 || err != nil {
				t.Errorf("what is stored: %d, %v; want 2", c, err)
			}
		})
	}
}

// TestFrozenRunThatNobodyTookOver: its record is its own still, so what it has done
// counts.
func TestFrozenRunThatNobodyTookOver(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		frozen := engine.Client()
		a := start(t.Context(), over(frozen, frozen.Records(), nil), "a", func(context.Context) (int64, error) {
			time.Sleep(6 * lease)
			return 1, nil
		})
		synctest.Wait()
		frozen.Freeze()
		time.Sleep(5 * lease)
		frozen.Thaw()
		if got := <-a; got.value != 1 || got.err != nil {
			t.Errorf("%+v, want 1", got)
		}
		var runs atomic.Int64
		if got, err := idempotent.Do(t.Context(), jobs(engine, idempotent.Config{}), "a", counted(&runs)); got != 1 || err != nil || runs.Load() > 0 {
			t.Errorf("later: %d, %v", got, err)
		}
	})
}

// TestLostAnswers: the answers of some swaps are lost, and the job runs once all the same.
func TestLostAnswers(t *testing.T) {
	for every := 2; every <= 4; every++ {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			var swaps, runs atomic.Int64
			f := &faulty{Records: engine.Records(), lose: func() bool { return swaps.Add(1)%int64(every) == 0 }}
			s := over(engine, f, nil)
			for range 2 {
				got, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
					time.Sleep(3 * lease)
					return counted(&runs)(ctx)
				})
				if got != 1 || err != nil {
					t.Errorf("every answer of %d lost: %d, %v", every, got, err)
				}
			}
		})
	}
}

// TestTooFewReplicas: swaps fail after they were carried out, since too few replicas have
// them. No run is begun with such a record, and no outcome counts as stored.
func TestTooFewReplicas(t *testing.T) {
	for from, want := range map[string]int64{"the beginning": 0, "the end": 1} {
		t.Run(from, func(t *testing.T) {
			bubble(t, func(t *testing.T, engine *memlock.Engine) {
				var few atomic.Bool
				few.Store(want == 0)
				var runs atomic.Int64
				f := &faulty{Records: engine.Records(), lose: few.Load}
				_, err := idempotent.Do(t.Context(), over(engine, f, nil), "a", func(ctx context.Context) (int64, error) {
					few.Store(true)
					return counted(&runs)(ctx)
				})
				if !errors.Is(err, driver.ErrUnavailable) || runs.Load() != want {
					t.Errorf("too few from %s: %d runs, %v", from, runs.Load(), err)
				}
			})
		})
	}
}

// TestCutOff: a run that is cut off from its records for less than a lease goes on; its
// outcome is stored when they are back, or is said not to be. So is one that the server refuses,
// as it does before it is promoted.
func TestCutOff(t *testing.T) {
	for _, why := range []error{driver.ErrUnavailable, driver.ErrConfig} {
		for _, back := range []bool{true, false} {
			bubble(t, func(t *testing.T, engine *memlock.Engine) {
				cutOff(t, engine, &faulty{Records: engine.Records(), why: why}, back)
			})
		}
	}
}

func cutOff(t *testing.T, engine *memlock.Engine, f *faulty, back bool) {
	s := over(engine, f, nil)
	got, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
		time.Sleep(lease)
		f.cut.Store(true)
		time.Sleep(lease / 3)
		f.cut.Store(false)
		time.Sleep(lease)
		if ctx.Err() != nil {
			t.Errorf("cut off for a third of a lease: %v", context.Cause(ctx))
		}
		f.cut.Store(true)
		if back {
			time.AfterFunc(lease/2, func() { f.cut.Store(false) })
		}
		return 1, nil
	})
	if back && err != nil || !back && !errors.Is(err, driver.ErrUnavailable) || got != 1 {
		t.Errorf("%v, back %v: %d, %v", f.why, back, got, err)
	}
}

// TestBrokenRun: the context of a run whose lock is broken ends at once, and what it has done counts
// unless another run has begun.
func TestBrokenRun(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		begun := time.Now()
		s := jobs(engine, idempotent.Config{})
		var runs atomic.Int64
		got, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
			if _, err := engine.Break(t.Context(), "idempotent/a", "test"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if _, lost := errors.AsType[*fencelock.LostError](context.Cause(ctx)); !lost {
				t.Errorf("its context ended with %v", context.Cause(ctx))
			}
			return counted(&runs)(ctx)
		})
		if time.Since(begun) > time.Second || got != 1 || err != nil {
			t.Errorf("%d, %v after %v", got, err, time.Since(begun))
		}
		failed := errors.New("failed")
		_, err = idempotent.Do(t.Context(), s, "b", func(ctx context.Context) (int64, error) {
			engine.Lose("idempotent/b")
			<-ctx.Done()
			return 0, failed
		})
		if !errors.Is(err, fencelock.ErrLost) || !errors.Is(err, failed) {
			t.Errorf("a run that was lost, and has failed: %v", err)
		}
	})
}

// TestForgottenRun: what a run has done is stored though the engine has forgotten its record, as
// long as it has the lock; then nobody else can have run the job.
func TestForgottenRun(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			records := engine.Records()
			s := jobs(engine, idempotent.Config{})
			var runs atomic.Int64
			_, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
				rec, err := records.Get(t.Context(), "idempotent/a")
				if err == nil {
					_, err = records.Swap(t.Context(), rec.Key, nil, rec.Version, time.Nanosecond)
				}
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Nanosecond) // it has expired
				if lost {
					engine.Lose("idempotent/a")
				}
				return counted(&runs)(ctx)
			})
			if lost != errors.Is(err, fencelock.ErrLost) || !lost && err != nil {
				t.Errorf("lost %v: %v", lost, err)
			}
			want := map[bool]int64{false: 1, true: 2}[lost]
			if got, err := idempotent.Do(t.Context(), s, "a", counted(&runs)); got != want || err != nil {
				t.Errorf("lost %v: asked again: %d, %v", lost, got, err)
			}
		})
	}
}

// TestRunBeyondTheRetention: a run may take longer than its outcome is kept.
func TestRunBeyondTheRetention(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		cfg := idempotent.Config{Retention: 2 * time.Second}
		var runs atomic.Int64
		var all []<-chan answer
		for range 2 {
			all = append(all, start(t.Context(), jobs(engine, cfg), "a", func(ctx context.Context) (int64, error) {
				time.Sleep(5 * lease)
				return counted(&runs)(ctx)
			}))
		}
		for _, c := range all {
			if got := <-c; got.value != 1 || got.err != nil {
				t.Errorf("%+v, want 1", got)
			}
		}
	})
}
