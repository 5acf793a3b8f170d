package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/google/go-cmp/cmp"
)

// watching follows e from a goroutine, which ends with the returned stop.
func watching(e *memlock.Engine, q driver.Query, kinds *[]driver.EventKind) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- e.Watch(ctx, q, func(ev driver.Event) error {
			*kinds = append(*kinds, ev.Kind)
			return nil
		})
	}()
	synctest.Wait()
	return func() error {
		synctest.Wait()
		cancel()
		return <-done
	}
}

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
		held := take(t, a, request("jobs/x"))
		w := wait(b, request("jobs/x"))
		var got []driver.EventKind
		stop := watching(c, driver.Query{Prefix: "jobs/"}, &got)
		gone := wait(c, request("jobs/x"))
		gone.cancel()
		synctest.Wait()
		take(t, a, request("other"))
		if err := a.Release(t.Context(), held); err != nil || !w.answered() {
			t.Fatal(err)
		}
		b.Kill()
		time.Sleep(ttl)
		want(t, stop(), context.Canceled)
		expected := []driver.EventKind{"acquired", "waiting", "waiting", "left", "released", "acquired", "lost"}
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestWatchReturnsTheCallersError(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		req := request("x")
		req.Identity = driver.Identity{Host: "one", PID: 1, Note: "n"}
		held := take(t, a, req)
		enough := errors.New("enough")
		err := b.Watch(t.Context(), driver.Query{}, func(ev driver.Event) error {
			expected := driver.Event{Identity: req.Identity, Kind: driver.EventAcquired, Name: "x",
				Owner: held.Owner, Token: held.Token, Time: time.Now()}
			if d := cmp.Diff(expected, ev); d != "" {
				t.Errorf("event (-want +got):\n%s", d)
			}
			return enough
		})
		want(t, err, enough)
	})
}

// A watcher may be slow, and may use the engine: the store does not wait for it.
func TestWatchDoesNotHoldUpTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, a, b, _ *memlock.Engine) {
		seen := 0
		done := make(chan error, 1)
		go func() { // ends when the client is killed
			done <- b.Watch(context.Background(), driver.Query{}, func(driver.Event) error {
				time.Sleep(time.Minute)
				_, err := b.List(context.Background(), driver.Query{})
				seen++
				return err
			})
		}()
		synctest.Wait()
		start := time.Now()
		for range 100 {
			if err := a.Release(t.Context(), take(t, a, request("x"))); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("the store waited %v for a watcher", time.Since(start))
		}
		time.Sleep(201 * time.Minute)
		synctest.Wait()
		if seen != 200 {
			t.Errorf("saw %d events, want 200", seen)
		}
		b.Kill()
		want(t, <-done, driver.ErrUnavailable)
	})
}
