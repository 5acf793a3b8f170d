package election

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/internal/retry"
)

// watch starts the goroutines that a candidate needs while Run or Terms is active, and returns a
// function that ends them.
func (c *Candidate) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	if c.cfg.OnLeader != nil {
		all.Go(func() { c.reportLeaders(ctx) })
	}
	if c.cfg.Rank > 0 { // a leader of rank 0 gives way to nobody
		all.Go(func() { c.followOthers(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// reportLeaders calls OnLeader until ctx ends.
func (c *Candidate) reportLeaders(ctx context.Context) {
	var last Leader
	for known := false; ctx.Err() == nil; retry.Sleep(ctx, pollSoon) {
		for leader, err := range Observe(ctx, c.locks, c.name) {
			if err != nil || ctx.Err() != nil {
				if ctx.Err() == nil {
					c.cfg.Logger.Warn("the leader is unknown", "name", c.name, "error", err)
				}
				break
			}
			if !known || !leader.same(last) {
				last, known = leader, true
				c.cfg.OnLeader(leader)
			}
		}
	}
}
