package recordlock_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestCostOfWaiters counts the requests of waiters for one name, on a store that must be polled. Those
// of a process share them, so the number of processes counts. With FENCELOCK_SLOW, a thousand wait.
func TestCostOfWaiters(t *testing.T) {
	type crowd struct{ processes, each, reads, writes int } // reads and writes a second, at most
	crowds := []crowd{{10, 10, 15, 8}}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		crowds = append(crowds, crowd{10, 100, 15, 8}, crowd{50, 20, 60, 20})
	}
	for _, c := range crowds {
		t.Run(fmt.Sprint(c.each, " in each of ", c.processes), func(t *testing.T) {
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
