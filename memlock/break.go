package memlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Break ends every acquisition of name and its minimum hold, tells the holders why,
// and returns a token greater than theirs. It is driver.ErrNotHeld when nobody holds
// the name and no minimum hold closes it.
func (e *Engine) Break(ctx context.Context, name, reason string) (token int64, err error) {
	return e.end(ctx, name, reason, func(l *lock, now time.Time) ([]*claim, bool) {
		return slices.Clone(l.holders), len(l.holders) > 0 || now.Before(l.notBefore)
	})
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else; see
// [driver.OwnerBreaker].
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error) {
	return e.end(ctx, name, reason, func(l *lock, _ time.Time) ([]*claim, bool) {
		for _, c := range l.holders {
			if c.owner == owner {
				return []*claim{c}, true
			}
		}
		return nil, false
	})
}

// end takes name from those holders that choose returns. It also says whether there is
// something to end: a minimum hold has no holder.
func (e *Engine) end(ctx context.Context, name, reason string, choose func(*lock, time.Time) ([]*claim, bool)) (token int64, err error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	err = e.call(ctx, func(now time.Time) error {
		l := e.store.lock(name, now)
		defer e.store.settle(l, now)
		holders, ok := choose(l, now)
		if !ok {
			return notHeld(name)
		}
		if len(holders) == len(l.holders) {
			l.notBefore = time.Time{}
		}
		token = e.store.mint(name, now)
		e.store.revoke(l, holders, fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, name, reason), now)
		return nil
	})
	return token, err
}
