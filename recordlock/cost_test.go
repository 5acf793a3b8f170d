package recordlock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestCostOfWaiters counts the requests of a thousand waiters for one name, on a store that must be
// polled. Processes share them, so their number counts.
func TestCostOfWaiters(t *testing.T) {
	for _, c := range []struct{ processes, each, reads, writes int }{ // a second, at most
		{10, 100, 15, 8},
		{50, 20, 60, 20},
	} {
		t.Run(fmt.Sprint(c.processes), func(t *testing.T) {
			play(t, true, func(s scene) {
				holder, _ := s.client()
				req := request()
				req.TTL = time.Hour
				g := s.acquire(holder, req)
				var links []*link
				var all sync.WaitGroup
				ctx, cancel := contextFor(s, time.Minute)
				for range c.processes {
					e, l := s.client()
					links = append(links, l)
					for range c.each {
						all.Go(func() { _, _ = e.Acquire(ctx, waiting()) }) // ends with ctx
					}
				}
				count := func() (gets, swaps int) {
					for _, l := range links {
						l.set(func(l *link) { gets, swaps = gets+l.gets, swaps+l.swaps })
					}
					return gets, swaps
				}
				const length = 10
				time.Sleep(20 * time.Second) // until all have joined
				gets, swaps := count()
				time.Sleep(length * time.Second)
				reads, writes := count()
				reads, writes = (reads-gets)/length, (writes-swaps)/length
				t.Logf("%d reads and %d writes a second", reads, writes)
				if reads > c.reads || writes > c.writes {
					t.Errorf("%d reads and %d writes a second, want %d and %d at most", reads, writes, c.reads, c.writes)
				}
				cancel()
				all.Wait()
				s.ok(holder.Release(s.Context(), lease(g)))
			})
		})
	}
}
