package cron_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/memlock"
)

// take is how a program acquires the lock of a tick that it runs.
func take(locks *fencelock.Locker) cron.Take {
	return cron.Take{Acquire: locks.TryAcquire, AtOnce: true, Shared: locks.Options().Shared}
}

// attempt begins an attempt at a tick.
func (in *instance) attempt(t *testing.T, tick time.Time) *cron.Attempt {
	t.Helper()
	a, err := in.job.Begin(t.Context(), tick, take(in.locks))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A program that holds a lock of its own while it runs a tick leaves in the record where that
// was, how long it took and how it ended.
func TestRunUnderTheLockOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(2, 0, cron.Config{})
		locks := all[0].locks.With(fencelock.Options{Shared: true, Limit: 2})
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, failure := range []error{nil, errors.New("exit status 3")} {
			tick := time.Now()
			a, err := all[0].job.Begin(t.Context(), tick, take(locks))
			if err != nil {
				t.Fatal(err)
			}
			lock := a.Lock()
			if last := all[1].status(t).Last; last == nil || last.State != cron.StateStarting || last.Token != lock.Token() {
				t.Errorf("before the start: %+v", last)
			}
			a.Started()
			synctest.Wait()
			if last := all[1].status(t).Last; last == nil || last.State != cron.StateRunning || last.Token != lock.Token() {
				t.Errorf("in the run: %+v", last)
			}
			time.Sleep(time.Minute)
			want(t, "the run", a.Finish(failure), failure)
			if err := lock.Err(); err != nil {
				t.Errorf("the lock is the caller's: %v", err)
			}
			wanted := cron.Run{Tick: tick.UTC().Round(0), State: cron.StateOK, Host: host, PID: os.Getpid(), Token: lock.Token(), Started: tick.UTC().Round(0), Ended: time.Now().UTC().Round(0)}
			if failure != nil {
				wanted.State, wanted.Error = cron.StateFailed, failure.Error()
			}
			if last := all[1].status(t).Last; last == nil || *last != wanted {
				t.Errorf("afterwards: %+v, want %+v", last, wanted)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		}
		if len(books.failed) != 1 {
			t.Errorf("the hook was told of %v", books.failed)
		}
	})
}

// An attempt that ends before the work has started, in whatever way, leaves the tick to the next
// caller, and the record says where it was.
func TestAttemptThatDoesNotStart(t *testing.T) {
	for name, end := range map[string]func(*instance, *cron.Attempt){
		"an error": func(_ *instance, a *cron.Attempt) {
			_ = a.Finish(errors.New("no such file"))
			_ = a.Lock().Release()
		},
		"a crash":  func(in *instance, _ *cron.Attempt) { in.engine.Kill(); time.Sleep(2 * ttl) },
		"a signal": func(_ *instance, a *cron.Attempt) { _ = a.Lock().Release() },
	} {
		for _, shared := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				all, books := fleet(3, 0, cron.Config{})
				for _, in := range all {
					in.locks = in.locks.With(fencelock.Options{Shared: shared})
				}
				end(all[0], all[0].attempt(t, epoch))
				s := all[1].status(t)
				if s.Last == nil || s.Last.State != cron.StateUnstarted || s.Last.Host == "" || !s.Tick.Equal(epoch) {
					t.Errorf("%s: %+v, %+v", name, s, s.Last)
				}
				a := all[1].attempt(t, epoch)
				a.Started()
				want(t, name, errors.Join(a.Finish(nil), a.Lock().Release()), nil)
				wantSkipped(t, all[2].job.Tick(t.Context(), epoch, books.work(epoch, 0)), cron.ReasonClaimed)
				if s := all[1].status(t); s.Last.State != cron.StateOK {
					t.Errorf("%s: %+v", name, s.Last)
				}
			})
		}
	}
}

// Two programs share the lock of a job: one of them starts the tick.
func TestAttemptsUnderASharedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(2, 0, cron.Config{})
		for _, in := range all {
			in.locks = in.locks.With(fencelock.Options{Shared: true})
		}
		a := all[0].attempt(t, epoch)
		_, err := all[1].job.Begin(t.Context(), epoch, take(all[1].locks))
		wantSkipped(t, err, cron.ReasonStarting)
		a.Started()
		synctest.Wait()
		_, err = all[1].job.Begin(t.Context(), epoch, take(all[1].locks))
		wantSkipped(t, err, cron.ReasonClaimed)
		want(t, "Finish", a.Finish(nil), nil)
	})
}

// While the engine cannot be written, an attempt that must not wait fails at once. It has not
// claimed the tick.
func TestAttemptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{})
		engine.refuse.Store(1)
		_, err := in.job.Begin(t.Context(), epoch, take(in.locks))
		want(t, "Begin", err, fencelock.ErrUnavailable)
		if took := time.Since(epoch); took > 0 {
			t.Errorf("it took %v", took)
		}
		in.attempt(t, epoch)
	})
}

// A caller that waits for the lock learns when another one has started the tick, however long that
// run takes.
func TestAttemptThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(3, 0, cron.Config{Late: 10 * time.Minute})
		earlier, err := all[2].locks.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan error, 2)
		for _, in := range all[:2] {
			go func() { // ends when one of them has started the tick
				a, err := in.job.Begin(t.Context(), epoch, cron.Take{Acquire: in.locks.Acquire})
				if err == nil {
					a.Started()
				}
				ends <- err
			}()
		}
		time.Sleep(time.Hour) // later than Late, and nobody has run the tick
		if err := earlier.Release(); err != nil {
			t.Fatal(err)
		}
		one, other := <-ends, <-ends
		if one != nil {
			one, other = other, one
		}
		want(t, "the first", one, nil)
		wantSkipped(t, other, cron.ReasonClaimed)
	})
}

// A start that could not be recorded is reported, since another instance may run the tick again.
func TestStartThatIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var engine faulty
		in := newLedger().instance(memlock.New(nil), engine.through, cron.Config{})
		a := in.attempt(t, epoch)
		engine.refuse.Store(1000)
		a.Started()
		want(t, "Finish", a.Finish(nil), cron.ErrUnrecorded, fencelock.ErrUnavailable)
	})
}

// Whatever keeps a run from beginning releases the lock.
func TestAttemptDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(1, 0, cron.Config{})
		job, locks := all[0].job, all[0].locks
		during := func(name string, do func(*fencelock.Lock)) error {
			_, err := job.Begin(t.Context(), epoch, cron.Take{AtOnce: true, Acquire: func(ctx context.Context, _ string) (*fencelock.Lock, error) {
				lock, err := locks.TryAcquire(ctx, name)
				if err == nil {
					do(lock)
				}
				return lock, err
			}})
			if s, err := locks.Status(t.Context(), name); err != nil || len(s.Holders) > 0 {
				t.Errorf("%+v, %v", s, err)
			}
			return err
		}
		want(t, "another name", during("other", func(*fencelock.Lock) {}), fencelock.ErrInvalid)
		wantSkipped(t, during("job", func(*fencelock.Lock) { want(t, "Pause", job.Pause(t.Context(), "repairs"), nil) }), cron.ReasonPaused)
		if last := all[0].status(t).Last; last != nil {
			t.Errorf("the record tells of %+v", last)
		}
		want(t, "Resume", job.Resume(t.Context()), nil)
		time.Sleep(time.Second)
		epoch := time.Now()
		_, err := job.Begin(t.Context(), epoch, cron.Take{AtOnce: true, Acquire: func(ctx context.Context, name string) (*fencelock.Lock, error) {
			lock, err := locks.TryAcquire(ctx, name)
			_, broken := locks.Break(ctx, name, "a test")
			synctest.Wait()
			return lock, errors.Join(err, broken)
		}})
		want(t, "a lost lock", err, fencelock.ErrLost)
	})
}

// A run that its program does not finish is lost once its lock is free.
func TestRunUnderALockIsNotFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, books := fleet(2, 0, cron.Config{})
		a := all[0].attempt(t, epoch)
		a.Started()
		synctest.Wait()
		if err := a.Lock().Release(); err != nil {
			t.Fatal(err)
		}
		if last := all[1].status(t).Last; last == nil || last.State != cron.StateLost {
			t.Errorf("%+v", last)
		}
		wantSkipped(t, all[1].job.Tick(t.Context(), epoch, books.work(epoch, 0)), cron.ReasonClaimed)
	})
}

// Without records, a lock claims the tick before the work starts. If the work does not start, the
// claim is given back.
func TestAttemptWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, books := memlock.New(nil), newLedger()
		one, two := books.instance(store.Client(), claimsOnly, cron.Config{}), books.instance(store.Client(), claimsOnly, cron.Config{})
		a := one.attempt(t, epoch)
		failure := errors.New("no such file")
		want(t, "Finish", a.Finish(failure), failure)
		want(t, "Release", a.Lock().Release(), nil)
		a = two.attempt(t, epoch)
		a.Started()
		want(t, "the run", errors.Join(a.Finish(nil), a.Lock().Release()), nil)
		_, err := one.job.Begin(t.Context(), epoch, take(one.locks))
		wantSkipped(t, err, cron.ReasonClaimed)
	})
}

// The text of an error is not cut within a character.
func TestErrorOfARunIsCutBetweenCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := alone(cron.Config{})
		failure := errors.New("x" + strings.Repeat("€", 1000))
		want(t, "the run", in.job.Tick(t.Context(), epoch, func(context.Context) error { return failure }), failure)
		text := in.status(t).Last.Error
		if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) || len(text) != 1024 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	})
}
