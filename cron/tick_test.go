package cron_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestTickReturnsWhatTheRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		var seen []cron.Run
		var errs []error
		in.tell(func(run cron.Run, err error) { seen, errs = append(seen, run), append(errs, err) })
		broken := errors.New("broken")
		tick := time.Now()
		err := in.job.Tick(t.Context(), tick, func(context.Context) error { time.Sleep(time.Second); return broken })
		want(t, "Tick", err, broken)
		wantSkipped(t, in.job.Tick(t.Context(), tick, nothing), cron.ReasonClaimed)
		if len(seen) != 2 {
			t.Fatalf("%+v", seen)
		}
		ran := seen[0]
		if ran.Ended.Sub(ran.Started) != time.Second || ran.Token == 0 || !ran.Tick.Equal(tick) || ran.State != cron.StateFailed || ran.Error != "broken" || !errors.Is(errs[0], broken) {
			t.Errorf("%+v, %v", ran, errs[0])
		}
		if seen[1] != (cron.Run{Tick: tick.UTC().Round(0)}) {
			t.Errorf("skipped: %+v", seen[1])
		}
		wantSkipped(t, errs[1], cron.ReasonClaimed)
	})
}

// The same instant is the same tick in every zone.
func TestTickIsAnInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		tick := time.Now()
		if err := in.job.Tick(t.Context(), tick.In(time.FixedZone("east", 5*3600+1800)), nothing); err != nil {
			t.Error(err)
		}
		wantSkipped(t, in.job.Tick(t.Context(), tick.UTC(), nothing), cron.ReasonClaimed)
	})
}

func TestTicksTooLateAndTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{Late: 10 * time.Second, Skew: 5 * time.Second})
		time.Sleep(time.Minute)
		now := time.Now()
		wantSkipped(t, in.job.Tick(t.Context(), now.Add(-11*time.Second), nothing), cron.ReasonTooLate)
		want(t, "the future", in.job.Tick(t.Context(), now.Add(6*time.Second), nothing), fencelock.ErrInvalid)
		if s := in.status(t); !s.Tick.IsZero() {
			t.Errorf("%v was taken", s.Tick)
		}
		for _, tick := range []time.Time{now.Add(-10 * time.Second), now.Add(5 * time.Second)} {
			if err := in.job.Tick(t.Context(), tick, nothing); err != nil {
				t.Errorf("%v: %v", tick.Sub(now), err)
			}
		}
	})
}

func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		overlap cron.Overlap
		begins  time.Duration // when the second run begins; 0 for never
	}{
		"skip":  {cron.OverlapSkip, 0},
		"wait":  {cron.OverlapLast, 10 * time.Second},
		"allow": {cron.OverlapAllow, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(2, 0, cron.Config{Overlap: c.overlap})
				zero := time.Now()
				go func() { _ = all[0].job.Tick(t.Context(), zero, books.work(zero, 10*time.Second)) }() // ends with the run
				time.Sleep(5 * time.Second)
				var began time.Duration
				err := all[1].job.Tick(t.Context(), time.Now(), func(context.Context) error {
					began = time.Since(zero)
					return nil
				})
				if began != c.begins || (began == 0) != errors.Is(err, cron.ErrSkipped) {
					t.Errorf("began at %v, %v", began, err)
				}
				if began == 0 {
					wantSkipped(t, err, cron.ReasonOverlapped)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A tick that waits for its turn gives up with its context, or with a wait limit.
func TestOverlapLastEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{Overlap: cron.OverlapLast})
		go func() { _ = in.job.Tick(t.Context(), time.Now(), books.work(time.Now(), time.Minute)) }() // ends with the run
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, "Tick", in.job.Tick(ctx, time.Now(), nothing), context.DeadlineExceeded, fencelock.ErrHeld)
		short := cron.New(in.locks.With(fencelock.Options{Wait: time.Second}), "job", &in.cfg)
		wantSkipped(t, short.Tick(t.Context(), time.Now(), nothing), cron.ReasonOverlapped)
		time.Sleep(time.Minute)
	})
}

// Whatever a Locker's own options: one instance claims a tick, and Overlap says who runs beside
// whom.
func TestLockersWithOptions(t *testing.T) {
	for name, c := range map[string]struct {
		overlap cron.Overlap
		through func(driver.Engine) driver.Engine
		runs    int
	}{
		"one at a time":  {cron.OverlapSkip, nil, 1},
		"side by side":   {cron.OverlapAllow, nil, 2},
		"by claims only": {cron.OverlapSkip, claimsOnly, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				books := newLedger()
				in := books.instance(memlock.New(nil), c.through, cron.Config{})
				locks := in.locks.With(fencelock.Options{Shared: true, Limit: 1})
				job := cron.New(locks, "job", &cron.Config{Overlap: c.overlap})
				ticks := series(2, time.Second)
				for _, tick := range slices.Concat(ticks, ticks) {
					go func() { // ends with the run
						time.Sleep(time.Until(tick))
						_ = job.Tick(t.Context(), tick, books.work(tick, time.Minute))
					}()
				}
				time.Sleep(time.Hour)
				books.wantRuns(t, ticks[:c.runs], 1)
				if books.ran() != c.runs {
					t.Errorf("%d ticks were run, want %d", books.ran(), c.runs)
				}
			})
		})
	}
}

// Runs that overlap hold a shared lock, and a minimum hold belongs to an exclusive one.
func TestMinHoldOfRunsThatOverlap(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{MinHold: time.Minute})
	err := cron.New(locks, "job", &cron.Config{Overlap: cron.OverlapAllow}).Tick(t.Context(), time.Now(), nothing)
	if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), "OverlapAllow") {
		t.Errorf("got %v, want ErrInvalid that names OverlapAllow", err)
	}
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		job := cron.New(in.locks.With(fencelock.Options{MinHold: 30 * time.Second}), "job", &in.cfg)
		for i, ran := range []bool{true, false, true} {
			err := job.Tick(t.Context(), time.Now(), nothing)
			if ran != (err == nil) {
				t.Errorf("tick %d: %v", i, err)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// An engine that falls silent while a tick waits for the run before it is broken, not busy.
func TestSilenceIsNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		in := books.instance(store, func(e driver.Engine) driver.Engine {
			return silentLocks{faultyEngine{e, e.(driver.Lister), e.(driver.RecordKeeper).Records()}}
		}, cron.Config{Overlap: cron.OverlapLast})
		err := in.job.Tick(t.Context(), time.Now(), nothing)
		want(t, "Tick", err, fencelock.ErrUnavailable)
		if errors.Is(err, cron.ErrSkipped) {
			t.Errorf("skipped: %v", err)
		}
	})
}

// Whatever keeps an instance from starting its work leaves the tick to the next one: the engine
// grants no locks, such as after a restart; the answer to the claim never comes; the lock is lost.
func TestTickThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		through func(*memlock.Engine, *faulty) func(driver.Engine) driver.Engine
		err     error
	}{
		"no locks": {func(*memlock.Engine, *faulty) func(driver.Engine) driver.Engine {
			return func(e driver.Engine) driver.Engine {
				return silentLocks{faultyEngine{e, e.(driver.Lister), e.(driver.RecordKeeper).Records()}}
			}
		}, fencelock.ErrUnavailable},
		"no answer to the claim": {func(_ *memlock.Engine, f *faulty) func(driver.Engine) driver.Engine {
			f.lose.Store(7)
			return f.through
		}, context.DeadlineExceeded},
		"a lost lock": {func(store *memlock.Engine, _ *faulty) func(driver.Engine) driver.Engine {
			return func(e driver.Engine) driver.Engine {
				return faultyEngine{e, e.(driver.Lister), losing{e.(driver.RecordKeeper).Records(), store}}
			}
		}, fencelock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, books := memlock.New(nil), newLedger()
				one := books.instance(store, c.through(store, new(faulty)), cron.Config{})
				two := books.instance(store, nil, cron.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				want(t, "the first", one.job.Tick(ctx, epoch, books.work(epoch, 0)), c.err)
				if s := two.status(t); s.Last != nil && s.Last.State != cron.StateUnstarted {
					t.Errorf("%+v", s.Last)
				}
				want(t, "the next", two.job.Tick(t.Context(), epoch, books.work(epoch, 0)), nil)
				books.wantEach(t, 1)
			})
		})
	}
}

// silentLocks answers for records, and never for locks.
type silentLocks struct{ faultyEngine }

func (silentLocks) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: silence: %w", driver.ErrUnavailable, ctx.Err())
}

// tardyLocks takes its time to grant a lock.
type tardyLocks struct{ faultyEngine }

func (s tardyLocks) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(6 * time.Second)
	return s.faultyEngine.Acquire(ctx, req)
}

// A tick that has become too late before it can begin is not run.
func TestTooLateWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newLedger().instance(memlock.New(nil), func(e driver.Engine) driver.Engine {
			return tardyLocks{faultyEngine{e, e.(driver.Lister), e.(driver.RecordKeeper).Records()}}
		}, cron.Config{Late: 5 * time.Second})
		wantSkipped(t, in.job.Tick(t.Context(), epoch, in.ledger.work(epoch, 0)), cron.ReasonTooLate)
		if s, err := in.locks.Status(t.Context(), "job"); err != nil || len(s.Holders) > 0 || in.ledger.ran() > 0 {
			t.Errorf("%+v, %v, %d runs", s, err, in.ledger.ran())
		}
	})
}

func TestRunIsToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		err := in.job.Tick(t.Context(), time.Now(), func(ctx context.Context) error {
			in.engine.Lose("job")
			<-ctx.Done()
			want(t, "the cause", context.Cause(ctx), fencelock.ErrLost)
			return nil
		})
		want(t, "Tick", err, fencelock.ErrLost)
	})
}

// forgetful says of each lock that it was not held when it is released.
type forgetful struct{ faultyEngine }

func (f forgetful) Release(ctx context.Context, l driver.Lease) error {
	_ = f.faultyEngine.Release(ctx, l)
	return driver.ErrNotHeld
}

// losing loses the lock of the job while a record is written.
type losing struct {
	driver.Records
	store *memlock.Engine
}

func (l losing) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	l.store.Lose("job")
	return l.Records.Swap(ctx, key, value, version, ttl)
}

// A run whose lock is lost before its work begins does not begin: another one may go on.
func TestLossBeforeTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		in := newLedger().instance(store, func(e driver.Engine) driver.Engine {
			return faultyEngine{e, e.(driver.Lister), losing{e.(driver.RecordKeeper).Records(), store}}
		}, cron.Config{})
		want(t, "Now", in.job.Now(t.Context(), in.ledger.work(epoch, 0)), fencelock.ErrLost)
		if in.ledger.ran() > 0 || len(in.ledger.failed) != 1 {
			t.Errorf("%d runs, failed %v", in.ledger.ran(), in.ledger.failed)
		}
	})
}

// A lock that the engine had lost without a word is told as lost, since nobody knows when.
func TestLossThatTheReleaseFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newLedger().instance(memlock.New(nil), func(e driver.Engine) driver.Engine {
			return forgetful{faultyEngine{e, e.(driver.Lister), e.(driver.RecordKeeper).Records()}}
		}, cron.Config{})
		want(t, "Tick", in.job.Tick(t.Context(), epoch, nothing), fencelock.ErrLost)
	})
}

// A run is not lost that was over when the engine went away, however long its outcome cannot be
// written.
func TestLossAfterTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		err := in.job.Tick(t.Context(), epoch, func(context.Context) error {
			in.engine.Refuse(errors.New("no route"))
			return nil
		})
		if err != nil || len(books.failed) > 0 {
			t.Errorf("%v, %v", err, books.failed)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("deployment")
		time.AfterFunc(time.Second, func() { cancel(reason) })
		want(t, "Tick", in.job.Tick(ctx, time.Now(), books.work(time.Now(), time.Hour)), reason)
	})
}

func TestRunThatPanicsGivesTheLockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		func() {
			defer func() { _ = recover() }()
			_ = in.job.Tick(t.Context(), time.Now(), func(context.Context) error { panic("oops") })
		}()
		if s, err := in.locks.Status(t.Context(), "job"); err != nil || len(s.Holders) > 0 || len(books.failed) != 1 {
			t.Errorf("%+v, %v, %v", s, err, books.failed)
		}
	})
}

// What panics in other people's code, and is recovered, keeps nobody from the job.
func TestPanicsGiveTheLockBack(t *testing.T) {
	for what, c := range map[string]struct {
		refuse int64 // so many swaps, so that the logger is called
		err    error
		panics bool
	}{
		"the error of a run":          {0, (*nilError)(nil), false},
		"the logger at the beginning": {100, nil, true},
		"the logger at the end":       {0, errLogged, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var engine faulty
				in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{Logger: slog.New(angryLogger{})})
				engine.refuse.Store(c.refuse)
				defer func() {
					if r := recover(); (r != nil) != c.panics {
						t.Errorf("panicked with %v", r)
					}
					if s, err := in.locks.Status(t.Context(), "job"); err != nil || len(s.Holders) > 0 {
						t.Errorf("%+v, %v", s, err)
					}
				}()
				_ = in.job.Now(t.Context(), func(context.Context) error {
					if errors.Is(c.err, errLogged) {
						engine.refuse.Store(100)
					}
					return c.err
				})
			})
		})
	}
}

// nilError is what a function returns that means nil and says so with a type.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

var errLogged = errors.New("the logger gets it")

// angryLogger panics on the message that a run is not in the record.
type angryLogger struct{ slog.Handler }

func (angryLogger) Enabled(context.Context, slog.Level) bool { return true }
func (l angryLogger) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (angryLogger) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "the run is not in the record") {
		panic(r.Message)
	}
	return nil
}

// Config.Late bounds claims with a lock too.
func TestLateClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newLedger().instance(memlock.New(nil), claimsOnly, cron.Config{Late: 5 * time.Second})
		wantSkipped(t, in.job.Tick(t.Context(), time.Now().Add(-6*time.Second), nothing), cron.ReasonTooLate)
		want(t, "the future", in.job.Tick(t.Context(), time.Now().Add(time.Hour), nothing), fencelock.ErrInvalid)
		in.engine.Delay(6 * time.Second)
		wantSkipped(t, in.job.Tick(t.Context(), time.Now(), nothing), cron.ReasonTooLate)
	})
}

func TestEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, books := alone(cron.Config{})
		in.engine.Refuse(errors.New("no route"))
		began := time.Now()
		want(t, "Tick", in.job.Tick(t.Context(), time.Now(), nothing), fencelock.ErrUnavailable)
		if took := time.Since(began); len(books.failed) != 1 || took < 50*time.Second || took > time.Minute {
			t.Errorf("reported %v after %v, want one after the minute that a tick may be late", books.failed, took)
		}
		tick := time.Now()
		time.AfterFunc(30*time.Second, func() { in.engine.Refuse(nil) })
		if err := in.job.Tick(t.Context(), tick, books.work(tick, 0)); err != nil {
			t.Errorf("an engine that was away for 30s: %v", err)
		}
		books.wantRuns(t, []time.Time{tick}, 1)
	})
}

func TestJobsThatMakeNoSense(t *testing.T) {
	in, _ := alone(cron.Config{})
	for what, job := range map[string]*cron.Job{
		"no locks":       cron.New(nil, "job", nil),
		"no name":        cron.New(in.locks, "", nil),
		"no UTF-8":       cron.New(in.locks, "\xff", nil),
		"a long name":    cron.New(in.locks, strings.Repeat("n", 481), nil),
		"negative skew":  cron.New(in.locks, "job", &cron.Config{Skew: -1}),
		"late for weeks": cron.New(in.locks, "job", &cron.Config{Late: 15 * 24 * time.Hour}),
		"late for ever":  cron.New(in.locks, "job", &cron.Config{Late: math.MaxInt64}),
	} {
		want(t, what, job.Tick(t.Context(), time.Now(), nothing), fencelock.ErrInvalid)
		_, err := job.Due(cron.Every(time.Hour))
		want(t, what, err, fencelock.ErrInvalid)
		want(t, what, job.Run(t.Context(), cron.Every(time.Hour), nothing), fencelock.ErrInvalid)
	}
}

// Without records a job leaves a bounded number of names behind, and they can be read.
func TestNamesOfClaimsComeAgain(t *testing.T) {
	for _, c := range []struct {
		late  time.Duration
		ticks int
		gap   time.Duration
		names int
		first string
	}{
		{0, 500, time.Minute, 60, "job@1m0s"},
		{25 * time.Hour, 100, 24 * time.Hour, 28, "job@480h0m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			books := newLedger()
			in := books.instance(memlock.New(nil), claimsOnly, cron.Config{Late: c.late})
			seen := map[string]bool{}
			for i, tick := range series(c.ticks, c.gap) {
				time.Sleep(time.Until(tick))
				if err := in.job.Tick(t.Context(), tick, books.work(tick, 0)); err != nil {
					t.Fatalf("tick %d: %v", i, err)
				}
				list, err := in.locks.List(t.Context(), "job@")
				if err != nil || len(list) == 0 {
					t.Fatalf("%v, %v", list, err)
				}
				for _, s := range list {
					seen[s.Name] = true
				}
				if i == 0 && list[0].Name != c.first {
					t.Errorf("the first claim is %q", list[0].Name)
				}
			}
			if len(seen) != c.names {
				t.Errorf("%d names for %d ticks", len(seen), c.ticks)
			}
		})
	}
}

// While it runs, the job's status shows the tick; afterwards the log shows all.
func TestSkipsAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		in, _ := alone(cron.Config{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		tick := time.Now()
		if err := in.job.Tick(t.Context(), tick, func(ctx context.Context) error {
			s, err := in.locks.Status(ctx, "job")
			if err != nil || len(s.Holders) != 1 || s.Holders[0].Note != "2000-01-01T00:00:00Z" {
				t.Errorf("%+v, %v", s, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		err := in.job.Tick(t.Context(), tick, nothing)
		if got := fmt.Sprint(err); got != `"job" at 2000-01-01T00:00:00Z was skipped: already claimed` {
			t.Error(got)
		}
		_ = in.job.Tick(t.Context(), tick.Add(time.Second), func(context.Context) error { return errors.New("broken") })
		for _, line := range []string{`level=DEBUG msg="tick run" job=job`, `level=INFO msg="tick skipped" job=job`, `level=WARN msg="tick failed" job=job`} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("no %s in\n%s", line, out.String())
			}
		}
	})
}

// A tick that is due a moment early by the clock is run, whatever the skew.
func TestTickTakenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{Skew: time.Millisecond})
		due, err := in.job.Due(cron.Every(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9960 * time.Millisecond)
		ticks := due.Take(time.Now())
		if len(ticks) != 1 {
			t.Fatalf("took %v", ticks)
		}
		if err := in.job.Tick(t.Context(), ticks[0], nothing); err != nil {
			t.Error(err)
		}
	})
}

// The work knows which tick it is for.
func TestTickFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		tick := time.Now().Add(-time.Second)
		err := in.job.Tick(t.Context(), tick, func(ctx context.Context) error {
			if got, ok := cron.TickFrom(ctx); !ok || !got.Equal(tick) {
				t.Errorf("got %v, %v", got, ok)
			}
			return nil
		})
		if got, ok := cron.TickFrom(t.Context()); err != nil || ok {
			t.Errorf("%v; without a tick: %v", err, got)
		}
	})
}
