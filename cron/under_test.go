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
	"github.com/fencelock/fencelock/internal/cronhook"
	"github.com/fencelock/fencelock/memlock"
)

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
			if err := cronhook.Claim(t.Context(), all[0].job, tick); err != nil {
				t.Fatal(err)
			}
			lock, err := locks.Acquire(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			finish, err := cronhook.StartUnder(t.Context(), all[0].job, tick, lock)
			if err != nil {
				t.Fatal(err)
			}
			if last := all[1].status(t).Last; last == nil || last.State != cron.StateRunning || last.Token != lock.Token() {
				t.Errorf("in the run: %+v", last)
			}
			time.Sleep(time.Minute)
			want(t, "the run", finish(failure), failure)
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

// Whatever keeps a run from beginning leaves the caller's lock alone.
func TestRunUnderALockDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(1, 0, cron.Config{})
		job := all[0].job
		if err := cronhook.Claim(t.Context(), job, epoch); err != nil {
			t.Fatal(err)
		}
		other, err := all[0].locks.Acquire(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		_, err = cronhook.StartUnder(t.Context(), job, epoch, other)
		want(t, "another name", err, fencelock.ErrInvalid)
		lock, err := all[0].locks.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := job.Pause(t.Context(), "repairs"); err != nil {
			t.Fatal(err)
		}
		_, err = cronhook.StartUnder(t.Context(), job, epoch, lock)
		wantSkipped(t, err, cron.ReasonPaused)
		if err := errors.Join(lock.Err(), other.Err()); err != nil {
			t.Error(err)
		}
		if last := all[0].status(t).Last; last != nil {
			t.Errorf("the record tells of %+v", last)
		}
		if err := job.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := all[0].locks.Break(t.Context(), "job", "a test"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = cronhook.StartUnder(t.Context(), job, epoch, lock)
		want(t, "a lost lock", err, fencelock.ErrLost)
	})
}

// A run that its program does not finish is lost once its lock is free.
func TestRunUnderALockIsNotFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := fleet(2, 0, cron.Config{})
		if err := cronhook.Claim(t.Context(), all[0].job, epoch); err != nil {
			t.Fatal(err)
		}
		lock, err := all[0].locks.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cronhook.StartUnder(t.Context(), all[0].job, epoch, lock); err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		if last := all[1].status(t).Last; last == nil || last.State != cron.StateLost {
			t.Errorf("%+v", last)
		}
	})
}

// An engine without records, or whose records cannot be asked, keeps no run from beginning.
func TestRunUnderALockWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken faulty
		store, books := memlock.New(nil), newLedger()
		for i, in := range []*instance{
			books.instance(store.Client(), claimsOnly, cron.Config{}),
			books.instance(store.Client(), broken.through, cron.Config{}),
		} {
			tick := epoch.Add(time.Duration(i) * time.Minute)
			time.Sleep(time.Until(tick))
			if err := cronhook.Claim(t.Context(), in.job, tick); err != nil {
				t.Fatal(err)
			}
			lock, err := in.locks.Acquire(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			broken.refuse.Store(1000)
			finish, err := cronhook.StartUnder(t.Context(), in.job, tick, lock)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(tick); took > 2*time.Second {
				t.Errorf("the run began after %v", took)
			}
			broken.refuse.Store(0)
			if err := errors.Join(finish(nil), lock.Release()); err != nil {
				t.Error(err)
			}
		}
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
