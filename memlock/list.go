package memlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// List returns the names q chooses that are held, waited for, or closed by a
// minimum hold, ordered by name.
func (e *Engine) List(ctx context.Context, q driver.Query) (list []driver.Status, err error) {
	err = e.call(ctx, func(now time.Time) error {
		for _, l := range e.store.chosen(q, now) {
			list = append(list, l.status(now))
		}
		return nil
	})
	return list, err
}

// chosen returns the locks q chooses, ordered by name, up to date.
func (s *store) chosen(q driver.Query, now time.Time) []*lock {
	var chosen []*lock
	for _, name := range slices.Sorted(maps.Keys(s.locks)) {
		if !q.Matches(name) {
			continue
		}
		if s.settle(s.locks[name], now); s.locks[name] != nil {
			chosen = append(chosen, s.locks[name])
		}
	}
	return chosen
}

func (l *lock) status(now time.Time) driver.Status {
	st := driver.Status{Name: l.name}
	if all := slices.Concat(l.holders, l.queue); len(all) > 0 {
		st.Mode, st.Limit = all[0].req.Mode, all[0].req.Limit
	}
	if st.Limit > 0 {
		st.Limit = cmp.Or(l.limit, st.Limit)
	}
	for _, h := range l.holders {
		st.Holders = append(st.Holders, driver.Holder{
			Identity: h.req.Identity, Owner: h.owner, Token: h.token, Since: h.since, TTL: h.until.Sub(now), Lease: h.req.TTL, Weight: h.weight()})
	}
	for _, w := range l.queue {
		st.Waiters = append(st.Waiters, driver.Waiter{
			Identity: w.req.Identity, Owner: w.owner, Since: w.joined, Position: l.position(w), Weight: w.weight()})
	}
	if now.Before(l.notBefore) {
		st.NotBefore = l.notBefore
	}
	return st
}

// weight is how much of a limit the claim takes, for people to see.
func (c *claim) weight() int {
	if c.req.Limit == 0 {
		return 0
	}
	return c.req.Units()
}
