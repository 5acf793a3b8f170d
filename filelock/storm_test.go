package filelock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/filelock"
)

// TestStormOfTurns lets several engines of one process fight for one name. It
// fails when nobody gets a turn for long.
func TestStormOfTurns(t *testing.T) {
	const engines, each, turns = 3, 6, 40
	dir := tempDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var taken atomic.Int64
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range engines {
		e := filelock.New(dir, nil)
		for range each {
			wg.Go(func() {
				for range turns {
					req := request("a")
					req.Wait = true
					g, err := e.Acquire(ctx, req)
					if err != nil {
						t.Errorf("after %d turns: %v", taken.Load(), err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					taken.Add(1)
					inside.Add(-1)
					release(t, e, leaseOf("a", g))
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { // ends with the turns
		wg.Wait()
		close(ended)
	}()
	for last := int64(-1); ; last = taken.Load() {
		select {
		case <-ended:
			return
		case <-time.After(patience):
			if taken.Load() == last {
				t.Errorf("nobody had a turn for %v after the first %d", patience, last)
				cancel()
				return
			}
		}
	}
}
