package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// TestRun: the ends of a run, and what the next caller gets.
func TestRun(t *testing.T) {
	final := errors.New("final")
	for _, c := range []struct {
		end  func(*idempotent.Run) error
		over string // the outcome; empty: the job can be run again
	}{
		{func(r *idempotent.Run) error { return r.Complete([]byte("x\ny")) }, `"x\ny" <nil>`},
		{func(r *idempotent.Run) error { return r.Complete(nil) }, `"" <nil>`},
		{func(r *idempotent.Run) error { return r.Complete(make([]byte, 101)) }, `"" idempotent: the job was done, but its result was not stored: "a"`},
		{func(r *idempotent.Run) error { return r.Fail(final) }, `"" idempotent: "a" has failed: final`},
		{func(r *idempotent.Run) error { return r.Fail(errors.New("passing")) }, ""},
		{func(r *idempotent.Run) error { r.Abandon(); return nil }, ""},
	} {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			s := jobs(engine, idempotent.Config{MaxResult: 100, Remember: func(err error) bool { return err == final }})
			run := begin(t, s)
			if token, ok := fencelock.TokenFrom(run.Context()); !ok || token != run.Lock().Token() || run.Lock().Name() != "idempotent/a" {
				t.Errorf("the lock %q, and the token %d in its context", run.Lock().Name(), token)
			}
			time.Sleep(time.Hour)
			for range 2 { // the second one does nothing
				if err := errors.Join(c.end(run), run.Fail(final), run.Complete([]byte("other"))); err != nil {
					t.Error(err)
				}
				run.Abandon()
			}
			if run.Context().Err() == nil || !errors.Is(run.Lock().Err(), fencelock.ErrNotHeld) {
				t.Errorf("after the end: %v, %v", run.Context().Err(), run.Lock().Err())
			}
			again, err := s.Begin(t.Context(), "a")
			if c.over == "" {
				if err != nil {
					t.Fatalf("the next run: %v", err)
				}
				again.Abandon()
				return
			}
			over, ok := errors.AsType[*idempotent.DoneError](err)
			if !ok || over.Host == "" || over.PID == 0 || !over.Ended.Equal(time.Now()) {
				t.Fatalf("%+v", err)
			}
			if got := fmt.Sprintf("%q %v", over.Result, over.Err); got != c.over {
				t.Errorf("got %s, want %s", got, c.over)
			}
		})
	}
}

// TestAgain: a job that is over is run again if the caller says so, and has another outcome then.
func TestAgain(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{Remember: func(error) bool { return true }})
		retry := s.With(idempotent.Options{Again: func(d *idempotent.DoneError) bool { return d.Err != nil }})
		fail := func(context.Context) (int64, error) { return 0, errors.New("failed") }
		if _, err := idempotent.Do(t.Context(), s, "a", fail); err == nil {
			t.Error("no error")
		}
		var runs atomic.Int64
		if _, err := idempotent.Do(t.Context(), s, "a", counted(&runs)); !errors.As(err, new(*idempotent.FailedError)) {
			t.Errorf("without Again: %v", err)
		}
		for range 2 {
			if got, err := idempotent.Do(t.Context(), retry, "a", counted(&runs)); got != 1 || err != nil {
				t.Errorf("with Again: %d, %v", got, err)
			}
		}
		if got, err := idempotent.Do(t.Context(), s, "a", counted(&runs)); got != 1 || err != nil {
			t.Errorf("afterwards: %d, %v", got, err)
		}
	})
}

// TestWith: options add up, and a zero field leaves what the store has.
func TestWith(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		again := false
		s := jobs(engine, idempotent.Config{}).With(idempotent.Options{Payload: []byte("p")}).With(idempotent.Options{Wait: time.Second})
		s = s.With(idempotent.Options{Again: func(*idempotent.DoneError) bool { return again }}).With(idempotent.Options{})
		run := begin(t, s)
		begun := time.Now()
		if _, err := s.Begin(t.Context(), "a"); !errors.Is(err, idempotent.ErrInProgress) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := s.With(idempotent.Options{NoWait: true}).With(idempotent.Options{}).Begin(t.Context(), "a"); !errors.Is(err, idempotent.ErrInProgress) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := s.With(idempotent.Options{Payload: []byte("q")}).Begin(t.Context(), "a"); !errors.Is(err, idempotent.ErrMismatch) {
			t.Errorf("another payload: %v", err)
		}
		if err := run.Complete(nil); err != nil {
			t.Error(err)
		}
		if _, err := s.Begin(t.Context(), "a"); !errors.As(err, new(*idempotent.DoneError)) {
			t.Errorf("after it: %v", err)
		}
		again = true
		begin(t, s).Abandon()
	})
}

// TestLockerWithOptions: whatever the Locker is for, the runs hold exclusive locks.
func TestLockerWithOptions(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: lease, Shared: true, Limit: 5, Weight: 2, Wait: time.Second})
		s := idempotent.New(locks, engine.Records(), nil)
		run := begin(t, s)
		next := start(t.Context(), s, "a", func(context.Context) (int64, error) { return 2, nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case got := <-next:
			t.Errorf("beside the run: %+v", got)
		default:
		}
		run.Abandon()
		if got := <-next; got.value != 2 || got.err != nil {
			t.Errorf("%+v", got)
		}
	})
}
