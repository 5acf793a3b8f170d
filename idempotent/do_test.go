package idempotent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// TestOnce: the job runs once for each key, for as long as its result is kept.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var runs atomic.Int64
		var tokens []int64
		run := func(key string, want int64) {
			t.Helper()
			got, err := idempotent.Do(t.Context(), jobs(engine, idempotent.Config{Retention: time.Hour}), key, func(ctx context.Context) (int64, error) {
				token, ok := fencelock.TokenFrom(ctx)
				if !ok {
					t.Error("no token in the context of a run")
				}
				tokens = append(tokens, token)
				return counted(&runs)(ctx)
			})
			if got != want || err != nil {
				t.Errorf("%q: %d, %v; want %d", key, got, err, want)
			}
		}
		run("a", 1)
		run("a", 1)
		run("b", 2)
		time.Sleep(time.Hour)
		run("a", 3)
		if tokens[2] <= tokens[0] {
			t.Errorf("tokens %v", tokens)
		}
		if _, ok := fencelock.TokenFrom(t.Context()); ok {
			t.Error("a token without a run")
		}
	})
}

// TestManyAtOnce: of many callers one runs the job, and all get its result.
func TestManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var runs atomic.Int64
		var all []<-chan answer
		for range 50 {
			all = append(all, start(t.Context(), jobs(engine, idempotent.Config{}), "a", func(ctx context.Context) (int64, error) {
				time.Sleep(time.Second)
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

// TestInProgress: who does not wait, or not for long, learns who runs the job.
func TestInProgress(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var runs atomic.Int64
		end := make(chan struct{})
		first := start(t.Context(), jobs(engine, idempotent.Config{}), "a", func(ctx context.Context) (int64, error) {
			<-end
			return counted(&runs)(ctx)
		})
		synctest.Wait()
		s := jobs(engine, idempotent.Config{})
		_, err := idempotent.Do(t.Context(), s.With(idempotent.Options{NoWait: true}), "a", counted(&runs))
		busy, ok := errors.AsType[*idempotent.InProgressError](err)
		if !ok || !errors.Is(err, idempotent.ErrInProgress) || busy.Key != "a" || busy.Held.PID == 0 || busy.Held.Name != "idempotent/a" || time.Until(busy.Held.Until) != lease {
			t.Errorf("without a wait: %+v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = idempotent.Do(ctx, s, "a", counted(&runs))
		if !errors.Is(err, idempotent.ErrInProgress) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that ended: %v", err)
		}
		close(end)
		if got := <-first; got.value != 1 || got.err != nil {
			t.Errorf("the run: %+v", got)
		}
	})
}

// TestFailure: the next caller runs the job again, at once, unless the failure is an
// outcome that is to be remembered.
func TestFailure(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		passing, final := errors.New("passing"), errors.New("final")
		s := jobs(engine, idempotent.Config{Remember: func(err error) bool { return errors.Is(err, final) }})
		begun := time.Now()
		var tokens []int64
		for _, own := range []error{passing, passing, final} {
			_, err := idempotent.Do(t.Context(), s, "a", func(ctx context.Context) (int64, error) {
				token, _ := fencelock.TokenFrom(ctx)
				tokens = append(tokens, token)
				return 0, own
			})
			if err != own {
				t.Errorf("got %v, want %v as it is", err, own)
			}
		}
		if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
			t.Errorf("the tokens of three runs: %v", tokens)
		}
		var runs atomic.Int64
		_, err := idempotent.Do(t.Context(), s, "a", counted(&runs))
		failed, ok := errors.AsType[*idempotent.FailedError](err)
		if !ok || failed.Key != "a" || failed.Text != "final" || runs.Load() > 0 {
			t.Errorf("after a failure that is remembered: %v", err)
		}
		if d := time.Since(begun); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestPanic: a panic goes on, and the next caller runs the job at once.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{})
		func() {
			defer func() {
				if p := recover(); p != "oh" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { panic("oh") })
		}()
		var runs atomic.Int64
		begun := time.Now()
		if got, err := idempotent.Do(t.Context(), s, "a", counted(&runs)); got != 1 || err != nil || time.Since(begun) > time.Second {
			t.Errorf("%d, %v after %v", got, err, time.Since(begun))
		}
	})
}

// TestMismatch: a key belongs to one payload, while it runs and afterwards, also if it
// has failed.
func TestMismatch(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{})
		one, two := s.With(idempotent.Options{Payload: []byte("one")}), s.With(idempotent.Options{Payload: []byte("two")})
		var runs atomic.Int64
		refused := func(when string) {
			t.Helper()
			for _, other := range []*idempotent.Store{two, s} {
				if _, err := idempotent.Do(t.Context(), other, "a", counted(&runs)); !errors.Is(err, idempotent.ErrMismatch) {
					t.Errorf("another payload, %s: %v", when, err)
				}
			}
		}
		own := errors.New("own")
		_, err := idempotent.Do(t.Context(), one, "a", func(context.Context) (int64, error) {
			refused("while the job runs")
			return 0, own
		})
		if !errors.Is(err, own) {
			t.Error(err)
		}
		refused("after a failure")
		for range 2 {
			if got, err := idempotent.Do(t.Context(), one, "a", counted(&runs)); got != 1 || err != nil {
				t.Errorf("%d, %v", got, err)
			}
		}
		refused("after a success")
	})
}

// TestResultThatIsNotKept: the job is done all the same, and its caller has the result.
func TestResultThatIsNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{MaxResult: 100})
		long := func(context.Context) (string, error) { return strings.Repeat("x", 99), nil } // and two quotes
		if got, err := idempotent.Do(t.Context(), s, "long", long); len(got) != 99 || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := idempotent.Do(t.Context(), s, "long", long); !errors.Is(err, idempotent.ErrNoResult) {
			t.Errorf("the result is too long: %v", err)
		}
		strange := func(context.Context) (chan int, error) { return make(chan int), nil }
		for i := range 2 {
			got, err := idempotent.Do(t.Context(), s, "strange", strange)
			if !errors.Is(err, idempotent.ErrNoResult) || (got != nil) != (i == 0) {
				t.Errorf("a result that has no JSON: %v, %v", got, err)
			}
		}
		if _, err := idempotent.Do(t.Context(), s, "text", func(context.Context) (string, error) { return "text", nil }); err != nil {
			t.Error(err)
		}
		if _, err := idempotent.Do(t.Context(), s, "text", func(context.Context) (int, error) { return 1, nil }); err == nil {
			t.Error("a text was decoded as a number")
		}
	})
}

func TestInvalid(t *testing.T) {
	engine := memlock.New(nil)
	records := engine.Records()
	var runs atomic.Int64
	for what, c := range map[string]struct {
		key string
		cfg idempotent.Config
	}{
		"no key":               {"", idempotent.Config{}},
		"a long key":           {strings.Repeat("n", 505), idempotent.Config{}},
		"a negative retention": {"a", idempotent.Config{Retention: -1}},
		"a short retention":    {"a", idempotent.Config{Retention: time.Second - 1}},
		"a long result":        {"a", idempotent.Config{MaxResult: driver.MaxRecord}},
	} {
		if _, err := idempotent.Do(t.Context(), over(engine, records, &c.cfg), c.key, counted(&runs)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := records.Swap(t.Context(), "idempotent/a", []byte("no JSON"), "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := idempotent.Do(t.Context(), over(engine, records, nil), "a", counted(&runs)); !errors.Is(err, driver.ErrConfig) || runs.Load() > 0 {
		t.Errorf("a record of somebody else: %v", err)
	}
}

// TestFenceOfARun: guards of a run get its own fence, and not that of a lock around it. A
// lock that the run takes has its own again.
func TestFenceOfARun(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		locks, s := fencelock.New(engine, nil), jobs(engine, idempotent.Config{})
		err := locks.Do(t.Context(), "outer", func(ctx context.Context) error {
			_, err := idempotent.Do(ctx, s, "a", func(ctx context.Context) (int64, error) {
				token, ok := fencelock.TokenFrom(ctx)
				if f, err := fence.From(ctx); !ok || err != nil || f != (fence.Fence{Name: "idempotent/a", Token: token, Floor: token}) {
					t.Errorf("in the run: %+v, %v; its token is %d", f, err, token)
				}
				return 0, locks.Do(ctx, "inner", func(ctx context.Context) error {
					if f, err := fence.From(ctx); err != nil || f.Name != "inner" {
						t.Errorf("in a lock of the run: %+v, %v", f, err)
					}
					return nil
				})
			})
			if f, bad := fence.From(ctx); bad != nil || f.Name != "outer" {
				t.Errorf("after the run: %+v, %v", f, bad)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestRememberedTextIsCutBetweenCharacters: that of a long error is valid UTF-8.
func TestRememberedTextIsCutBetweenCharacters(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{Remember: func(error) bool { return true }})
		long := errors.New("xy" + strings.Repeat("€", 5000))
		_, _ = idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { return 0, long })
		_, err := idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { return 0, nil })
		failed, ok := errors.AsType[*idempotent.FailedError](err)
		if !ok || strings.ContainsRune(failed.Text, utf8.RuneError) || len(failed.Text) != 4094 {
			t.Errorf("%.40v, %d bytes", err, len(failed.Text))
		}
	})
}
