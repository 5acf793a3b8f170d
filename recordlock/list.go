package recordlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/fencelock/fencelock/driver"
)

// List returns the names that are held, waited for or closed by a minimum hold; see
// [driver.Lister]. It reads all of their records unless the query names one, since the keys of long
// names do not begin with them.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	var records []driver.Record
	var err error
	switch {
	case !q.Exact:
		records, err = e.records.List(ctx, e.cfg.Prefix)
	case driver.CheckName(q.Prefix) == nil: // an invalid name cannot be held
		records = make([]driver.Record, 1)
		records[0], err = e.records.Get(ctx, e.key(q.Prefix))
	}
	if err != nil {
		return nil, err
	}
	m := e.moment(ctx, clockLimit)
	var list []driver.Status
	var broken []error
	for _, rec := range records {
		st, err := decode("", rec.Value)
		if err != nil {
			broken = append(broken, fmt.Errorf("%w (its key is %q)", err, rec.Key))
			continue
		}
		if s := e.status(st, m); q.Matches(st.Name) && (len(s.Holders)+len(s.Waiters) > 0 || !s.NotBefore.IsZero()) {
			list = append(list, s)
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, errors.Join(broken...)
}

// status returns the status of a name at m.
func (e *Engine) status(st *state, m moment) driver.Status {
	seen := sightings(nil)
	e.mu.Lock()
	d := e.workers[st.Name]
	e.mu.Unlock()
	if d != nil { // it may have seen the leases before
		d.mu.Lock()
		defer d.mu.Unlock()
		seen = d.seen
	}
	st.prune(m, seen)
	s := driver.Status{Name: st.Name}
	for _, h := range st.Holders {
		s.Holders = append(s.Holders, driver.Holder{
			Identity: h.Identity(), Owner: h.Owner, Token: h.Token, Since: h.since(), Weight: h.Weight,
			TTL: min(seen.left(h.Owner, h.lease, m), micros(h.TTL)), Lease: micros(h.TTL),
			Foreign: h.Token == 0, // records show it that do not come from this package
		})
	}
	for i, w := range st.Waiters {
		s.Waiters = append(s.Waiters, driver.Waiter{Identity: w.Identity(), Owner: w.Owner, Since: w.since(), Position: i + 1, Weight: w.Weight})
	}
	if all := slices.Concat(st.Holders, st.Waiters); len(all) > 0 && all[0].Shared {
		if s.Mode, s.Limit = driver.Shared, all[0].Limit; s.Limit > 0 && st.Limit > 0 {
			s.Limit = st.Limit
		}
	}
	if st.Closed != nil {
		s.NotBefore = m.wall.Add(seen.left(minimum, st.Closed.lease, m))
	}
	return s
}
