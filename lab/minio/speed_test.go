package minio

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/recordlock"
)

// TestSpeed measures an acquire and its release, and the time from a release to the next grant. It
// prints them.
func TestSpeed(t *testing.T) {
	s := start(t, build(t))
	lockers := make([]*fencelock.Locker, 2)
	for i := range lockers {
		engine := recordlock.New(recordsAt(s.url()+" speed/"), nil)
		t.Cleanup(func() { _ = engine.Close() })
		lockers[i] = fencelock.New(engine, nil)
	}
	var pairs, turns []time.Duration
	for range 300 {
		begun := time.Now()
		if err := lockers[0].Do(t.Context(), "alone", func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, time.Since(begun))
	}
	held, err := lockers[0].Acquire(t.Context(), "passed")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		granted := make(chan *fencelock.Lock)
		go func() { // ends with its acquisition
			lock, err := lockers[1-i%2].Acquire(t.Context(), "passed")
			if err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		time.Sleep(200 * time.Millisecond) // it waits by then
		begun := time.Now()
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		if held = <-granted; held == nil {
			t.FailNow()
		}
		turns = append(turns, time.Since(begun))
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	for name, all := range map[string][]time.Duration{"acquire and release": pairs, "hand-over": turns} {
		slices.Sort(all)
		t.Logf("%s: p50 %v, p90 %v", name, all[len(all)/2], all[len(all)*9/10])
	}
}
