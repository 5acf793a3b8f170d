package filelock

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sort"

	"github.com/fencelock/fencelock/driver"
)

// List returns the names that are held, waited for or closed by a minimum hold, according to the
// live tickets. If the directory lock of a name is stuck, or a file is damaged, Status.Trouble says
// so and the status has what can be read without the lock. If some names may not be read, List
// returns the others together with a driver.ErrConfig about the first of these. It waits at most five
// seconds for all directory locks that are stuck, and all file leases that other programs keep.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	p := &patience{e.dir.listing}
	names, unread := e.dir.names(ctx, p, q)
	var all []driver.Status
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := e.dir.status(ctx, p, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // swept meanwhile, or never used
			continue
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			if err = e.dir.unavailable(err); errors.Is(err, driver.ErrConfig) { // this user may not read it
				unread = cmp.Or(unread, err)
				continue
			}
			s.Trouble = err
		}
		if s.Trouble != nil || len(s.Holders) > 0 || len(s.Waiters) > 0 || !s.NotBefore.IsZero() {
			all = append(all, s)
		}
	}
	return all, unread
}

// status returns the status of one name. It takes the directory lock if it can, so that it sees no
// incomplete change.
func (d *directory) status(ctx context.Context, p *patience, name string) (driver.Status, error) {
	s := view{driver.Status{Name: name}}
	g, trouble, err := d.peek(ctx, p, name)
	if err != nil {
		return s.Status, err
	}
	defer g.leave()
	s.Trouble = trouble
	all, err := g.tickets()
	for _, t := range all {
		if err == nil {
			err = s.add(g, t)
		}
	}
	if err == nil && s.Limit > 0 {
		var override int
		override, err = g.override()
		s.Limit = cmp.Or(override, s.Limit)
	}
	if err != nil {
		return s.Status, err
	}
	sort.SliceStable(s.Holders, func(i, j int) bool { return s.Holders[i].Since.Before(s.Holders[j].Since) })
	if len(s.Holders) == 0 && g.inside {
		s.addForeign(g)
	}
	s.NotBefore, err = g.notBefore()
	if err == nil && g.inside && len(s.Holders) == 0 && len(s.Waiters) == 0 {
		g.unmarkIdle()
	}
	return s.Status, err
}

// A view is a status under construction. Tickets are added in their order, in which holders and
// waiters are mixed, since a ticket keeps its place when it is granted.
type view struct{ driver.Status }

// add adds a ticket, if it is alive.
func (s *view) add(g *nameLock, t ticket) error {
	f, err := g.openTicket(t)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	r, _, _ := readRecord(f) // a record that cannot be read is left out
	if len(s.Holders) == 0 && (t.held || len(s.Waiters) == 0) {
		s.Mode, s.Limit = t.mode, t.limit // of the holders, otherwise of the next waiter
	}
	if !t.held {
		s.Waiters = append(s.Waiters, driver.Waiter{
			Identity: r.Identity(), Owner: t.owner, Since: r.Since, Position: len(s.Waiters) + 1, Weight: t.weight,
		})
		return nil
	}
	s.Holders = append(s.Holders, driver.Holder{
		Identity: r.Identity(), Owner: t.owner, Token: r.Token, Since: r.Since, Weight: t.weight,
	})
	return nil
}

// addForeign adds the holder of a lock without a ticket, if there is one: flock(1), or a child that
// outlived its parent.
func (s *view) addForeign(g *nameLock) {
	f, busy := g.locked()
	if f == nil {
		return
	}
	defer f.Close()
	if !busy {
		return
	}
	h := driver.Holder{Foreign: true, Identity: driver.Identity{Host: machine()}}
	if pids := g.waits.flockOwners(f); len(pids) > 0 {
		h.PID = pids[0]
		h.Note = commandOf(h.PID)
	}
	s.Holders = append(s.Holders, h)
}
