package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// told is what a tracer was called with, in order.
type told struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *told) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// tracer writes down what it is told of one lock.
func (l *told) tracer() *fencelock.Tracer {
	return &fencelock.Tracer{
		AcquireStart: func(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
			l.add("start %v", d.Mode)
			return ctx
		},
		AcquireWait: func(_ context.Context, d fencelock.TraceAcquireWait) {
			l.add("wait %v, place %d, behind %v", d.Mode, d.Position, d.Held != nil)
		},
		AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) {
			l.add("end %v, queued %v of %v, behind %v, %v", d.Mode, d.Queued, d.Waited, d.Held != nil, d.Err == nil)
		},
		HoldStart: func(ctx context.Context, d fencelock.TraceLock) context.Context {
			l.add("hold %v", d.Mode)
			return context.WithValue(ctx, spanKey{}, fmt.Sprint("hold of ", d.Name))
		},
		HoldEnd: func(ctx context.Context, d fencelock.TraceHoldEnd) {
			l.add("held %v for %v, lost %v, in %v", d.Mode, d.Held, d.Lost != nil, ctx.Value(spanKey{}))
		},
		ReleaseStart: func(ctx context.Context, d fencelock.TraceLock) context.Context {
			l.add("release %v", d.Mode)
			return ctx
		},
		ReleaseEnd: func(_ context.Context, d fencelock.TraceReleaseEnd) { l.add("released %v, %v", d.Mode, d.Err) },
	}
}

// TestTracerHearsAWholeLock: an acquisition that waits, its hold, and its end.
func TestTracerHearsAWholeLock(t *testing.T) {
	const begins = "start shared|wait shared, place 1, behind true|end shared, queued 1m0s of 1m0s, behind true, true|hold shared|"
	for _, c := range []struct {
		what string
		end  func(*memlock.Engine)
		want string
	}{
		{"released", func(*memlock.Engine) {}, "release shared|released shared, <nil>|held shared for 1m0s, lost false, in hold of a"},
		{"lost", func(e *memlock.Engine) { e.Lose("a") }, "held shared for 1m0s, lost true, in hold of a|release shared|released shared, *"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l told
				engine := memlock.New(nil)
				first := acquire(t, fencelock.New(engine.Client(), nil).With(fencelock.Options{TTL: hour}), "a")
				time.AfterFunc(time.Minute, func() { _ = first.Release() })
				locks := fencelock.New(engine, &fencelock.Config{Tracer: l.tracer()}).With(fencelock.Options{TTL: hour})
				lock := acquire(t, locks.With(fencelock.Options{Shared: true}), "a")
				time.Sleep(time.Minute)
				c.end(engine)
				synctest.Wait() // losses are told a little later
				_ = lock.Release()
				l.mu.Lock()
				defer l.mu.Unlock()
				if got := join(l.lines); !matches(got, begins+c.want) {
					t.Errorf("heard\n%s, want\n%s", got, begins+c.want)
				}
			})
		})
	}
}

func join(lines []string) (all string) {
	for i, line := range lines {
		if i > 0 {
			all += "|"
		}
		all += line
	}
	return all
}

// matches compares, where a star at the end of want stands for anything.
func matches(got, want string) bool {
	if n := len(want) - 1; want[n] == '*' {
		return len(got) >= n && got[:n] == want[:n]
	}
	return got == want
}

// What is done under a lock belongs to the context that HoldStart made, and still ends
// with the caller's.
func TestWorkHangsBelowItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l told
		locks, _ := newLocks(fencelock.Config{Tracer: l.tracer()})
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.Do(ctx, "a", func(ctx context.Context) error {
			if got := ctx.Value(spanKey{}); got != "hold of a" {
				t.Errorf("Do runs in %v", got)
			}
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the work did not end with its caller: %v", err)
		}
		lock := acquire(t, locks, "b")
		if got := lock.Context().Value(spanKey{}); got != "hold of b" {
			t.Errorf("the lock's context is in %v", got)
		}
		_ = lock.Release()
	})
}

// A batch says how many of its locks are gone, and how much time is left to the others.
func TestRenewEndSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards got
		var got []fencelock.TraceRenewEnd
		engine := &halfDeaf{Engine: memlock.New(nil)}
		locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
			RenewEnd: func(_ context.Context, d fencelock.TraceRenewEnd) { mu.Lock(); got = append(got, d); mu.Unlock() },
		}}).With(fencelock.Options{TTL: hour})
		for _, name := range []string{"a", "b", "c"} {
			defer acquire(t, locks, name).Release()
		}
		time.Sleep(25 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(got) == 0 || got[0].Locks != 3 || got[0].Failed != 2 || got[0].Gone != 1 || got[0].Left < 30*time.Minute || got[0].Left > 41*time.Minute {
			t.Errorf("%+v", got)
		}
	})
}

// halfDeaf is an engine that has lost "a" and does not answer for "b".
type halfDeaf struct{ *memlock.Engine }

func (d *halfDeaf) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := d.Engine.Renew(ctx, leases)
	for i, lease := range leases {
		switch lease.Name {
		case "a":
			errs[i] = driver.ErrNotHeld
		case "b":
			errs[i] = driver.ErrUnavailable
		}
	}
	return errs
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		want := func(what string, want fencelock.Stats) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, locks.Stats()); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		want("at first", fencelock.Stats{})
		first := acquire(t, locks, "a")
		time.Sleep(time.Minute)
		const margin = 12*time.Second + 10*time.Millisecond // of ten minutes
		second := acquire(t, locks.With(fencelock.Options{TTL: 10 * time.Minute}), "b")
		waited := make(chan *fencelock.Lock)
		go func() { waited <- acquire(t, locks, "a") }() // ends when the first is released
		want("two held, one waits", fencelock.Stats{Held: 2, Waiting: 1, Oldest: time.Minute, Left: 10*time.Minute - margin})
		_ = first.Release()
		third := <-waited
		_, _ = second.Release(), third.Release()
		want("in the end", fencelock.Stats{})
	})
}

// A note of a context is that of one acquisition.
func TestWithNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		locks = locks.With(fencelock.Options{Note: "run 7"})
		err := locks.DoAll(fencelock.WithNote(t.Context(), "request 1"), []string{"a", "b"}, func(ctx context.Context) error {
			defer acquire(t, locks, "c").Release()
			list, err := locks.List(ctx, "")
			var notes []string
			for _, s := range list {
				notes = append(notes, s.Holders[0].Note)
			}
			if !slices.Equal(notes, []string{"request 1", "request 1", "run 7"}) {
				t.Errorf("%q", notes)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A trace of a context is that of its acquisitions, those of sets too, and AcquireStart may
// give one. What is no traceparent is dropped.
func TestWithTrace(t *testing.T) {
	const outer, inner = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	own := &fencelock.Tracer{AcquireStart: func(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
		if d.Name == "b" {
			return ctx
		}
		return fencelock.WithTrace(ctx, inner)
	}}
	for _, c := range []struct {
		what, given string
		tracer      *fencelock.Tracer
		want        string // of "a", and of "b"
	}{
		{"nothing", "", nil, "; "},
		{"a trace", outer, nil, outer + "; " + outer},
		{"AcquireStart", outer, own, inner + "; " + outer},
		{"no trace", "00-xyz", nil, "; "},
	} {
		t.Run(c.what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
				locks := fencelock.New(engine, &fencelock.Config{Tracer: c.tracer}).With(fencelock.Options{TTL: hour})
				ctx := fencelock.WithTrace(t.Context(), c.given)
				shown := func(ctx context.Context) error {
					list, err := fencelock.New(engine, nil).List(ctx, "")
					if got := list[0].Holders[0].Trace + "; " + list[1].Holders[0].Trace; got != c.want {
						t.Errorf("got %q, want %q", got, c.want)
					}
					return err
				}
				one := func(ctx context.Context) error { return locks.Do(ctx, "b", shown) }
				if err := locks.Do(ctx, "a", one); err != nil {
					t.Error(err)
				}
				if err := locks.DoAll(ctx, []string{"a", "b"}, shown); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever waits is told the trace of the holder, and no error says it.
func TestWaitersLearnTheTraceOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		var seen []string
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireWait: func(_ context.Context, d fencelock.TraceAcquireWait) { seen = append(seen, d.Held.Trace) },
			AcquireEnd: func(_ context.Context, d fencelock.TraceAcquireEnd) {
				if d.Held != nil {
					seen = append(seen, d.Held.Trace)
				}
			},
		}})
		lock, err := locks.Acquire(fencelock.WithTrace(t.Context(), trace), "a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = locks.With(fencelock.Options{Wait: time.Minute}).Acquire(t.Context(), "a")
		var held *fencelock.HeldError
		if !errors.As(err, &held) || held.Trace != trace || strings.Contains(err.Error(), trace[:10]) {
			t.Errorf("the wait ended with %v", err)
		}
		if !slices.Equal(seen, []string{trace, trace}) {
			t.Errorf("the tracer was told of %q", seen)
		}
		_ = lock.Release()
	})
}

// contexts is a slog.Handler that keeps what the contexts of its records hold.
type contexts struct {
	slog.Handler
	seen func(ctx context.Context, message string)
}

func (c contexts) Enabled(context.Context, slog.Level) bool { return true }
func (c contexts) Handle(ctx context.Context, r slog.Record) error {
	c.seen(ctx, r.Message)
	return nil
}

// A logger can find the request that a lock was taken for.
func TestLoggersGetTheContextOfTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards heard
		heard := map[string]any{}
		logger := slog.New(contexts{slog.DiscardHandler, func(ctx context.Context, message string) {
			mu.Lock()
			defer mu.Unlock()
			heard[message] = ctx.Value(spanKey{})
		}})
		engine := memlock.New(nil)
		locks := fencelock.New(engine, &fencelock.Config{Logger: logger}).With(fencelock.Options{TTL: hour})
		ctx := context.WithValue(t.Context(), spanKey{}, "request 7")
		lock, err := locks.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		engine.Refuse(errors.New("maintenance"))
		time.Sleep(25 * time.Minute)
		engine.Refuse(nil)
		engine.Lose("a")
		synctest.Wait()
		_ = lock.Release()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]any{"acquire": "request 7", "renewal failed": "request 7", "lock lost": "request 7"}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Error(diff)
		}
	})
}
