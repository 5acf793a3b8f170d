//go:build unix

package engines_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// TestMaxHoldOnRealEngines: functions that hang keep their locks for the maximum hold and the
// grace. On files, where the process lives, they keep them until they return.
func TestMaxHoldOnRealEngines(t *testing.T) {
	names := 20
	if os.Getenv("FENCELOCK_SLOW") != "" {
		names = 200
	}
	const atOnce = 20 // more would measure the machine
	opts := fencelock.Options{TTL: time.Second, Grace: 500 * time.Millisecond, MaxHold: 2 * time.Second}
	for engine, connect := range engines.All(10 * time.Second) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			hanging, next := fencelock.New(client(), nil).With(opts), fencelock.New(client(), nil).With(fencelock.Options{TTL: 5 * time.Second})
			var all sync.WaitGroup
			var seen times
			var lost atomic.Int32
			room := make(chan struct{}, atOnce)
			for i := range names {
				room <- struct{}{}
				all.Go(func() { // ends with its hold
					for !outlive(t, hanging, next, fmt.Sprint("name-", i), opts, engine == "files", &seen) && !t.Failed() {
						lost.Add(1)
					}
					<-room
				})
			}
			all.Wait()
			t.Logf("%d times: contexts ended after %v, next holders were granted after %v; %d more were lost", names, &seen.ended, &seen.granted, lost.Load())
		})
	}
}

// times are the shortest and longest times of many holds.
type times struct{ ended, granted span }

// span is the shortest and the longest of some durations.
type span struct {
	mu          sync.Mutex // guards both
	least, most time.Duration
}

func (s *span) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.least == 0 || d < s.least {
		s.least = d
	}
	s.most = max(s.most, d)
}

// String returns both durations.
func (s *span) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%v to %v", s.least.Round(time.Millisecond), s.most.Round(time.Millisecond))
}

// outlive holds a name for longer than it may, while another Locker waits for it. It returns false
// if the machine was too busy to renew the lock in time, so that it was lost before.
func outlive(t *testing.T, hanging, next *fencelock.Locker, name string, opts fencelock.Options, kept bool, seen *times) bool {
	granted, released := make(chan time.Time, 1), make(chan struct{})
	begun, ended, lost := time.Now(), time.Time{}, false
	err := hanging.Do(t.Context(), name, func(ctx context.Context) error {
		go func() { // ends after the grant
			defer close(released)
			l, err := next.Acquire(t.Context(), name)
			granted <- time.Now()
			if err != nil {
				t.Error(err)
			} else if err := l.Release(); err != nil {
				t.Error(err)
			}
		}()
		<-ctx.Done()
		ended = time.Now()
		cause := context.Cause(ctx)
		if lost = errors.Is(cause, fencelock.ErrLost); lost {
			return nil
		}
		seen.ended.add(ended.Sub(begun))
		if took := ended.Sub(begun); took < opts.MaxHold || !errors.Is(cause, fencelock.ErrMaxHold) {
			t.Errorf("%s: the context ended after %v: %v", name, took, cause)
		}
		if kept {
			time.Sleep(2 * opts.Grace) // nothing may happen meanwhile
			ended = time.Now()
			return nil
		}
		at := <-granted
		granted <- at
		if at.Sub(begun) < opts.MaxHold+opts.Grace {
			t.Errorf("%s: the next holder got the lock after %v", name, at.Sub(begun))
		}
		return nil
	})
	at := <-granted
	<-released // the engines are closed at the end of the test
	if at.Before(ended) {
		t.Errorf("%s: the next holder got the lock %v before the work could stop", name, ended.Sub(at))
	}
	if lost {
		return false
	}
	if !errors.Is(err, fencelock.ErrMaxHold) || errors.Is(err, fencelock.ErrLost) {
		t.Errorf("%s: %v", name, err)
	}
	seen.granted.add(at.Sub(begun))
	return true
}
