package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	lookLimit = time.Second // bounds a look at the others
	lookShare = 10          // between a grant and the begin of the term, it may take this part of the TTL
	// On Redlock, a request is not listed while it competes for the lock.
	looksAgain = 3
	lookPause  = 30 * time.Millisecond
)

// giveWayAtOnce releases a lock that was just granted if a better candidate waits. Only the
// candidate that leads in the end runs its work.
func (c *Candidate) giveWayAtOnce(ctx context.Context, lock *fencelock.Lock) (gave bool, err error) {
	limited, cancel := context.WithTimeout(ctx, min(c.locks.Options().TTL/lookShare, lookLimit))
	defer cancel()
	found, err := c.lookAround(limited, lock.Owner(), 0)
	for again := 0; found.hidden && found.better == nil && again < looksAgain && retry.Sleep(limited, lookPause); again++ {
		found, err = c.lookAround(limited, lock.Owner(), 0)
	}
	if errors.Is(err, fencelock.ErrUnsupported) && c.cfg.Rank > 0 {
		_ = c.release(lock) // logged
		return false, fmt.Errorf("ranks need a list of the waiting candidates: %w", err)
	}
	c.mu.Lock()
	c.chosen = found.chosen
	c.mu.Unlock()
	if found.better == nil {
		return false, nil // also after an error: a leader of any rank is better than none
	}
	c.cfg.Logger.Info("another candidate is preferred", "name", c.name, "host", found.better.host, "rank", max(found.better.rank, 0))
	c.others.giveWay(lock.Owner(), found.better)
	_ = c.release(lock) // logged
	return true, nil
}

// lookAround looks at the other candidates. An error finds nothing.
func (c *Candidate) lookAround(ctx context.Context, own string, wait time.Duration) (finding, error) {
	status, err := c.locks.Status(ctx, c.name)
	if err != nil {
		return finding{}, err
	}
	return c.others.look(status, own, wait), nil
}

// letIn waits until the candidate to which this one has given way holds the lock, for a second at
// most. On an engine without a queue, this one could get the lock again and again instead.
func (c *Candidate) letIn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, defaultRest)
	defer cancel()
	for pause := retry.NewBackoff(firstLook, lastLook); ; {
		status, err := c.locks.Status(ctx, c.name)
		if err == nil && c.others.let(status) || !pause.Wait(ctx) {
			return
		}
	}
}

// followOthers looks at the other candidates until ctx ends, and resigns to a better one.
func (c *Candidate) followOthers(ctx context.Context) {
	for ok := true; ok; ok = retry.Sleep(ctx, c.others.pause()) {
		c.giveWayInTime(ctx)
	}
}

// giveWayInTime resigns if a better candidate has waited for the settle time.
func (c *Candidate) giveWayInTime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	term, own := c.Term(), ""
	if term != nil {
		own = term.lock.Owner()
	}
	found, _ := c.lookAround(ctx, own, c.cfg.Settle)
	c.mu.Lock()
	chosen := c.chosen
	c.mu.Unlock()
	if found.better == nil || chosen || term.Err() != nil {
		return
	}
	c.others.giveWay(own, found.better)
	term.cancel(fmt.Errorf("%w: a candidate of rank %d on %s has waited for %v", ErrResigned, max(found.better.rank, 0), found.better.host, c.cfg.Settle))
}
