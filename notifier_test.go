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

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// slowLog is a log that takes its time for each line.
type slowLog struct {
	slog.Handler
	each  time.Duration
	mu    sync.Mutex // guards lines
	lines []string
}

func newSlowLog(each time.Duration) *slowLog {
	return &slowLog{Handler: slog.NewTextHandler(nil, nil), each: each}
}

func (s *slowLog) Handle(_ context.Context, r slog.Record) error {
	time.Sleep(s.each)
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	return nil
}

func (s *slowLog) said(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

// A logger or a hook that blocks delays what it is told, and nothing else: every
// context ends on time, whoever finds out that the lock is lost.
func TestWhoBlocksWithholdsNoLoss(t *testing.T) {
	block := func() { time.Sleep(10 * time.Minute) }
	for what, cfg := range map[string]fencelock.Config{
		"logger":   {Logger: slog.New(newSlowLog(10 * time.Minute))},
		"level":    {Logger: slog.New(slowLevel{})},
		"HoldEnd":  {Tracer: &fencelock.Tracer{HoldEnd: func(context.Context, fencelock.TraceHoldEnd) { block() }}},
		"RenewEnd": {Tracer: &fencelock.Tracer{RenewEnd: func(context.Context, fencelock.TraceRenewEnd) { block() }}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, engine := newLocks(cfg)
				var held []*fencelock.Lock
				for i := range 20 {
					held = append(held, acquire(t, locks, fmt.Sprint("lock-", i)))
				}
				begun := time.Now()
				engine.Lose("lock-0")
				if err := context.Cause(held[0].Context()); !errors.Is(err, fencelock.ErrLost) || time.Since(begun) > 0 {
					t.Errorf("reported by the engine: after %v: %v", time.Since(begun), err)
				}
				engine.Freeze()
				for _, l := range held[1:] {
					deadline := l.Deadline()
					<-l.Context().Done()
					if late := time.Since(deadline); late > 0 {
						t.Errorf("%s: told %v after the deadline", l.Name(), late)
					}
				}
				begun = time.Now()
				if err := held[1].Err(); !errors.Is(err, fencelock.ErrLost) || time.Since(begun) > 0 {
					t.Errorf("Err: after %v: %v", time.Since(begun), err)
				}
				engine.Thaw()
				time.Sleep(24 * hour) // until everything is told
			})
		})
	}
}

// Notices are told in order, by one goroutine; those that come while too many wait
// are counted.
func TestNoticesInOrderWithABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newSlowLog(time.Second)
		tell := fencelock.NewNotifier(slog.New(log), 10)
		var got []int
		for i := range 100 {
			tell(func() { time.Sleep(time.Minute); got = append(got, i) })
			synctest.Wait()
		}
		time.Sleep(hour)
		synctest.Wait()
		want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10} // the first is being told while ten wait
		if !slices.Equal(got, want) || log.said("dropped") != 1 || log.said("count=89") != 1 {
			t.Errorf("told %v and %q, want %v, and that 89 were dropped", got, log.lines, want)
		}
		tell(func() { got = nil })
		time.Sleep(hour)
		synctest.Wait()
		if got != nil || len(log.lines) != 1 {
			t.Errorf("after a pause: %v, %q", got, log.lines)
		}
	})
}

// A hook that panics in Release, where the caller may recover, leaves nothing held,
// queued or renewed.
func TestAPanicInAHookOfReleaseLeavesNothing(t *testing.T) {
	for what, tracer := range map[string]*fencelock.Tracer{
		"ReleaseStart": {ReleaseStart: func(context.Context, fencelock.TraceLock) context.Context { panic("boom") }},
		"ReleaseEnd":   {ReleaseEnd: func(context.Context, fencelock.TraceReleaseEnd) { panic("boom") }},
		"HoldEnd":      {HoldEnd: func(context.Context, fencelock.TraceHoldEnd) { panic("boom") }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := &scripted{Engine: memlock.New(nil)}
				locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: hour})
				for _, use := range []func(){
					func() { _ = acquire(t, locks, "a").Release() },
					func() { _ = locks.Do(t.Context(), "a", func(context.Context) error { return nil }) },
				} {
					func() {
						defer func() {
							if recover() == nil {
								t.Error("the panic did not reach the caller")
							}
						}()
						use()
					}()
				}
				begun := time.Now()
				if _, err := engine.Acquire(t.Context(), driver.Request{Name: "a", TTL: hour}); err != nil || time.Since(begun) > 0 {
					t.Errorf("the next acquire after %v: %v", time.Since(begun), err)
				}
				time.Sleep(10 * hour)
				if len(engine.batches) > 0 {
					t.Errorf("%d renewals of a lock that was released", len(engine.batches))
				}
			})
		})
	}
}

// slowLevel is a log that takes its time to say which levels it wants.
type slowLevel struct{ slog.Handler }

func (s slowLevel) Enabled(_ context.Context, level slog.Level) bool {
	if level >= slog.LevelWarn {
		time.Sleep(10 * time.Minute)
	}
	return level >= slog.LevelWarn
}

func (s slowLevel) Handle(context.Context, slog.Record) error { return nil }
