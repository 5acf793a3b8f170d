package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// explosive is a codec that panics while it encodes.
type explosive struct{}

func (explosive) Encode(any) ([]byte, error)    { panic("oh") }
func (explosive) Decode(b []byte, to any) error { return json.Unmarshal(b, to) }

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
	engine := memlock.New(nil)
	records := engine.Records()
	for i, value := range []string{`{"state":"archived","owner":"o","token":1}` + "\n1", `{}`, `null`, `{"done":true,"token":1}`} {
		key := fmt.Sprint("job ", i)
		if _, err := records.Swap(t.Context(), "idempotent/"+key, []byte(value), "", 0); err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		_, err := idempotent.Do(t.Context(), over(engine, records, nil), key, counted(&runs))
		if !errors.Is(err, driver.ErrConfig) || runs.Load() != 0 {
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
		s := over(engine, &slow{engine.Records(), time.Second}, nil).With(idempotent.Options{Wait: time.Millisecond})
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
		s := over(engine, &slow{engine.Records(), 10 * time.Second}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // the second look takes from 10 to 20
		defer cancel()
		var runs atomic.Int64
		_, err := idempotent.Do(ctx, s, "a", counted(&runs))
		busy, ok := errors.AsType[*idempotent.InProgressError](err)
		if !ok || busy.Held.PID == 0 || !errors.Is(err, context.DeadlineExceeded) {
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

// interrupted is a record store with something that happens before or after its first Swap.
type interrupted struct {
	driver.Records
	before, after func()
}

func (i *interrupted) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	before, after := i.before, i.after
	i.before, i.after = nil, nil
	if before != nil {
		before()
	}
	next, err := i.Records.Swap(ctx, key, value, version, ttl)
	if after != nil {
		after()
	}
	return next, err
}

// TestLockLostInTheClaim: who has lost the lock before its function begins, while it writes that it
// runs, begins nothing: it gets the outcome of the run that came between.
func TestLockLostInTheClaim(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble(t, func(t *testing.T, engine *memlock.Engine) {
			var runs atomic.Int64
			other := func() {
				engine.Lose("idempotent/a")
				if got, err := idempotent.Do(t.Context(), jobs(engine, idempotent.Config{}), "a", counted(&runs)); got != 1 || err != nil {
					t.Errorf("the run in between: %d, %v", got, err)
				}
			}
			records := &interrupted{Records: engine.Records()}
			if before {
				records.before = other
			} else {
				records.after = other
			}
			got, err := idempotent.Do(t.Context(), over(engine, records, nil), "a", counted(&runs))
			if got != 1 || err != nil || runs.Load() != 1 {
				t.Errorf("before %v: %d, %v, and %d runs", before, got, err, runs.Load())
			}
		})
	}
}

// TestGreaterTokenInTheRecord: a run under a lock whose token is not greater than that of
// the run before does not begin: the locks are those of another engine, or have gone back.
func TestGreaterTokenInTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		begin(t, jobs(engine, idempotent.Config{})).Abandon()
		records := engine.Records()
		rec, err := records.Get(t.Context(), "idempotent/a")
		if err == nil {
			_, err = records.Swap(t.Context(), rec.Key, []byte(`{"state":"running","owner":"another","token":9223372036854775807}`), rec.Version, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		if _, err := idempotent.Do(t.Context(), jobs(engine, idempotent.Config{}), "a", counted(&runs)); !errors.Is(err, fencelock.ErrLost) || runs.Load() > 0 {
			t.Errorf("%v, and %d runs", err, runs.Load())
		}
		if _, err := fencelock.New(engine, nil).TryAcquire(t.Context(), "idempotent/a"); err != nil {
			t.Errorf("the lock afterwards: %v", err)
		}
	})
}

// TestWaitersOfOneProcess: those who wait behind another caller of their process go on when that
// one gives up, has failed, or has lost its lock, however long its function goes on.
func TestWaitersOfOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		other, s := begin(t, jobs(engine, idempotent.Config{})), jobs(engine, idempotent.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := start(ctx, s, "a", func(context.Context) (int64, error) { return 0, nil })
		synctest.Wait()
		var runs atomic.Int64
		var all []<-chan answer
		for range 100 {
			all = append(all, start(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
				switch n := runs.Add(1); n {
				case 1:
					return 0, errors.New("failed")
				case 2:
					engine.Lose("idempotent/a")
					time.Sleep(time.Hour)
					return n, ctx.Err()
				default:
					return n, nil
				}
			}))
		}
		short := start(ctx, s, "a", func(context.Context) (int64, error) { return 0, nil })
		for _, c := range []<-chan answer{first, short} {
			got := <-c
			busy, ok := errors.AsType[*idempotent.InProgressError](got.err)
			if !ok || !errors.Is(got.err, context.DeadlineExceeded) || !errors.Is(got.err, fencelock.ErrHeld) || busy.Held.PID == 0 {
				t.Errorf("a wait that ended: %v", got.err)
			}
		}
		other.Abandon()
		answers := map[int64]int{}
		for _, c := range all {
			got := <-c
			answers[got.value]++
			if (got.value == 3) != (got.err == nil) {
				t.Errorf("%+v", got)
			}
		}
		if answers[3] != 98 || runs.Load() != 3 {
			t.Errorf("answers %v, and %d runs", answers, runs.Load())
		}
	})
}

// TestOutageForManyOfOneProcess: what the engine said to one of those who wait is everybody's
// answer: they do not ask one after the other.
func TestOutageForManyOfOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		client := engine.Client()
		s, run := over(client, client.Records(), nil), begin(t, jobs(engine, idempotent.Config{}))
		var all []<-chan answer
		for range 100 {
			all = append(all, start(t.Context(), s, "a", func(context.Context) (int64, error) { return 0, nil }))
		}
		synctest.Wait()
		client.Refuse(errors.New("down"))
		begun := time.Now()
		run.Abandon()
		for _, c := range all {
			if got := <-c; !errors.Is(got.err, driver.ErrUnavailable) {
				t.Errorf("%+v", got)
			}
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWaiterBehindOneThatDoesNot: that another caller of its process does not wait is nothing to one
// that does.
func TestWaiterBehindOneThatDoesNot(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		run, client := begin(t, jobs(engine, idempotent.Config{})), engine.Client()
		s := over(client, client.Records(), nil)
		client.Delay(time.Second)
		job := func(context.Context) (int64, error) { return 1, nil }
		first := start(t.Context(), s.With(idempotent.Options{NoWait: true}), "a", job)
		time.Sleep(time.Millisecond)
		second := start(t.Context(), s, "a", job)
		if got := <-first; !errors.Is(got.err, idempotent.ErrInProgress) {
			t.Errorf("one that does not wait: %+v", got)
		}
		time.Sleep(time.Hour)
		if err := run.Complete([]byte("2")); err != nil {
			t.Error(err)
		}
		if got := <-second; got.value != 2 || got.err != nil {
			t.Errorf("one that waits: %+v", got)
		}
	})
}
