package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// explosive is a codec that panics while it encodes.
type explosive struct{ idempotent.JSON }

func (explosive) Encode(any) ([]byte, error) { panic("oh") }

// TestPanicAfterTheJob: a job that was done is not run again, though its result could not
// be encoded.
func TestPanicAfterTheJob(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{Codec: explosive{}})
		var runs atomic.Int64
		try := func() (panicked any, err error) {
			defer func() { panicked = recover() }()
			_, err = idempotent.Do(t.Context(), s, "a", counted(&runs))
			return nil, err
		}
		if p, _ := try(); p != "oh" {
			t.Errorf("the first call: panic %v", p)
		}
		if p, err := try(); p != nil || !errors.Is(err, idempotent.ErrNoResult) || runs.Load() != 1 {
			t.Errorf("the second call: panic %v, error %v, and %d runs", p, err, runs.Load())
		}
	})
}

// TestRecordsOfAnotherVersion: what a record says that this version does not know may be
// that the job was done, so it is not run.
func TestRecordsOfAnotherVersion(t *testing.T) {
	records := memlock.New(nil).Records()
	for i, value := range []string{`{"state":"archived","owner":"o","token":1}` + "\n1", `{}`, `null`, `{"done":true,"token":1}`} {
		key := fmt.Sprint("job ", i)
		if _, err := records.Swap(t.Context(), "idempotent/"+key, []byte(value), "", 0); err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		_, err := idempotent.Do(t.Context(), idempotent.New(records, nil), key, counted(&runs))
		if !errors.Is(err, driver.ErrInvalid) || runs.Load() != 0 {
			t.Errorf("%s: %v, and %d runs", value, err, runs.Load())
		}
	}
}

// slow is a record store whose calls take their time, or end with their context.
type slow struct {
	driver.Records
	takes time.Duration
}

func (s *slow) wait(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
}

func (s *slow) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := s.wait(ctx); err != nil {
		return driver.Record{}, err
	}
	return s.Records.Get(ctx, key)
}

func (s *slow) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	next, err := s.Records.Swap(ctx, key, value, version, ttl)
	if err != nil {
		return next, err
	}
	return next, s.wait(ctx)
}

// TestShortWait: a limit of the wait for others is none of the job's, nor of the records'.
func TestShortWait(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := idempotent.New(&slow{engine.Records(), time.Second}, &idempotent.Config{Lease: lease}).With(idempotent.Options{Wait: time.Millisecond})
		var runs atomic.Int64
		if got, err := idempotent.Do(t.Context(), s, "a", counted(&runs)); got != 1 || err != nil {
			t.Errorf("nobody else runs the job: %d, %v", got, err)
		}
		end := make(chan struct{})
		first := start(t.Context(), jobs(engine, idempotent.Config{}), "b", func(ctx context.Context) (int64, error) {
			<-end
			return 1, nil
		})
		synctest.Wait()
		if _, err := idempotent.Do(t.Context(), s, "b", counted(&runs)); !errors.Is(err, idempotent.ErrInProgress) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another one runs it: %v", err)
		}
		close(end)
		<-first
	})
}

// TestWaitEndsInTheMiddleOfALook: who was told that the job is in progress is told so, whenever the
// context ends.
func TestWaitEndsInTheMiddleOfALook(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		end := make(chan struct{})
		first := start(t.Context(), jobs(engine, idempotent.Config{}), "a", func(ctx context.Context) (int64, error) {
			<-end
			return 1, nil
		})
		synctest.Wait()
		s := idempotent.New(&slow{engine.Records(), 10 * time.Second}, &idempotent.Config{Lease: lease})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // the second look takes from 10 to 20
		defer cancel()
		var runs atomic.Int64
		_, err := idempotent.Do(ctx, s, "a", counted(&runs))
		busy, ok := errors.AsType[*idempotent.InProgressError](err)
		if !ok || busy.PID == 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := idempotent.Do(ctx, s, "a", counted(&runs)); errors.Is(err, idempotent.ErrInProgress) || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("nothing was heard of it: %v", err)
		}
		close(end)
		<-first
	})
}

// TestSlowClaim: a run that was taken over before its job began is no run: its caller gets
// the result of the other one.
func TestSlowClaim(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var runs atomic.Int64
		late := start(t.Context(), idempotent.New(&slow{engine.Records(), 2 * lease}, &idempotent.Config{Lease: lease}), "a", counted(&runs))
		time.Sleep(2*lease + lease/2) // its claim was carried out after two leases, and is answered after four
		other, err := idempotent.Do(t.Context(), jobs(engine, idempotent.Config{}), "a", counted(&runs))
		if got := <-late; other != 1 || err != nil || got.value != 1 || got.err != nil || runs.Load() != 1 {
			t.Errorf("%+v; the other one: %d, %v; and %d runs", got, other, err, runs.Load())
		}
	})
}

// vague is a record store that does not know exactly how late it is.
type vague struct {
	driver.Records
	by time.Duration
}

func (v *vague) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = v.Records.Clock(ctx)
	return earliest.Add(-v.by), latest.Add(v.by), err
}

// TestVagueClock: a lease counts from the latest that the clock may have shown, and is over
// when the earliest is past its end.
func TestVagueClock(t *testing.T) {
	const by = 20 * time.Second
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		killed := engine.Client()
		cfg := &idempotent.Config{Lease: lease}
		end := make(chan struct{})
		a := start(t.Context(), idempotent.New(&vague{killed.Records(), by}, cfg), "a", func(context.Context) (int64, error) {
			<-end
			return 1, nil
		})
		synctest.Wait()
		begun := time.Now()
		killed.Kill()
		var runs atomic.Int64
		if _, err := idempotent.Do(t.Context(), idempotent.New(&vague{engine.Client().Records(), by}, cfg), "a", counted(&runs)); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d < lease+2*by {
			t.Errorf("taken over after %v, with a lease of %v and a clock that is %v off", d, lease, by)
		}
		close(end)
		<-a
	})
}

// stepped is a record store whose clock somebody has set back.
type stepped struct {
	driver.Records
	back *atomic.Int64
}

func (s stepped) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = s.Records.Clock(ctx)
	by := time.Duration(s.back.Load())
	return earliest.Add(-by), latest.Add(-by), err
}

// TestClockSetBack: a run that died before the clock was set back a month keeps nobody out for
// longer than its lease, though none of those who ask waits. One that lives is not taken over.
func TestClockSetBack(t *testing.T) {
	for _, killed := range []bool{true, false} {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			var back, runs atomic.Int64
			first := engine.Client()
			cfg := &idempotent.Config{Lease: lease}
			a := start(t.Context(), idempotent.New(stepped{first.Records(), &back}, cfg), "a", func(ctx context.Context) (int64, error) {
				time.Sleep(5*lease + lease/2)
				if !killed && ctx.Err() != nil {
					t.Errorf("the context of a run that lives: %v", context.Cause(ctx))
				}
				return counted(&runs)(ctx)
			})
			synctest.Wait()
			back.Store(int64(30 * 24 * time.Hour))
			if killed {
				first.Kill()
			}
			begun := time.Now()
			s := idempotent.New(stepped{engine.Client().Records(), &back}, cfg).With(idempotent.Options{NoWait: true})
			got, err := idempotent.Do(t.Context(), s, "a", counted(&runs))
			for ; errors.Is(err, idempotent.ErrInProgress) && time.Since(begun) < 10*lease; time.Sleep(lease / 10) {
				got, err = idempotent.Do(t.Context(), s, "a", counted(&runs))
			}
			took := time.Since(begun)
			if got != 1 || err != nil || killed && (took < lease || took > lease+lease/4) || !killed && took < 5*lease {
				t.Errorf("killed %v: %d, %v after %v", killed, got, err, took)
			}
			if got := <-a; killed == (got.err == nil) {
				t.Errorf("killed %v: the first run: %+v", killed, got)
			}
		})
	}
}
