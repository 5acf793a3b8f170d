package filelock

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// List shows who holds and who waits, as the living tickets tell.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	names, err := e.names(q)
	if err != nil {
		return nil, err
	}
	var all []driver.Status
	for _, name := range names {
		s, err := e.status(ctx, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, e.unavailable(err)
		}
		if len(s.Holders) > 0 || len(s.Waiters) > 0 || !s.NotBefore.IsZero() {
			all = append(all, s)
		}
	}
	return all, nil
}

// names returns the names below the directory that q chooses, in order.
func (e *Engine) names(q driver.Query) ([]string, error) {
	if err := e.ready(false); err != nil {
		return nil, err
	}
	if q.Exact {
		return []string{q.Prefix}, nil
	}
	entries, err := os.ReadDir(e.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, e.unavailable(err)
	}
	var names []string
	for _, entry := range entries {
		b, err := os.ReadFile(filepath.Join(e.dir, entry.Name(), "name"))
		if err == nil && q.Matches(string(b)) {
			names = append(names, string(b))
		}
	}
	slices.Sort(names)
	return names, nil
}

// status describes one name. It goes through the gate, so it sees no change
// half done.
func (e *Engine) status(ctx context.Context, name string) (driver.Status, error) {
	s := driver.Status{Name: name}
	g, err := e.enter(ctx, name, false)
	if err != nil {
		return s, err
	}
	defer g.leave()
	all, err := g.tickets()
	if err != nil {
		return s, err
	}
	for _, t := range all {
		if err := g.describe(&s, t); err != nil {
			return s, err
		}
	}
	if s.Limit > 0 {
		override, err := g.limit()
		if err != nil {
			return s, err
		}
		s.Limit = cmp.Or(override, s.Limit)
	}
	slices.SortStableFunc(s.Holders, func(a, b driver.Holder) int { return a.Since.Compare(b.Since) })
	if len(s.Holders) == 0 {
		g.describeForeign(&s)
	}
	until, _, err := g.readNumber("not-before")
	if t := time.UnixMicro(until); t.After(time.Now()) {
		s.NotBefore = t
	}
	return s, err
}

// describe adds a ticket to a status, if it lives.
func (g *gate) describe(s *driver.Status, t ticket) error {
	f, err := g.openTicket(t)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	r, _, _ := readRecord(f) // what cannot be read is not shown
	if len(s.Holders) == 0 && (t.held || len(s.Waiters) == 0) {
		s.Mode, s.Limit = t.mode, t.limit // of those who hold, else of the next one
	}
	if !t.held {
		s.Waiters = append(s.Waiters, driver.Waiter{
			Identity: r.identity(), Owner: t.owner, Since: r.Since, Position: len(s.Waiters) + 1, Weight: t.weight,
		})
		return nil
	}
	s.Holders = append(s.Holders, driver.Holder{
		Identity: r.identity(), Owner: t.owner, Token: r.Token, Since: r.Since, Weight: t.weight,
	})
	return nil
}

// describeForeign adds the holder of a lock without a ticket, if there is one.
func (g *gate) describeForeign(s *driver.Status) {
	f, busy := g.busy()
	if f == nil {
		return
	}
	defer f.Close()
	if !busy {
		return
	}
	h := driver.Holder{Foreign: true, Identity: driver.Identity{Host: machine()}}
	if pids, _ := flockOwners(f); len(pids) > 0 {
		h.PID = pids[0]
		if comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.PID), "comm")); err == nil {
			h.Note = strings.TrimSpace(string(comm))
		}
	}
	s.Holders = append(s.Holders, h)
}

// busy opens the lock file and reports whether anybody holds its flock. It
// leaves it unlocked.
func (g *gate) busy() (f *os.File, busy bool) {
	f, err := g.openFile("lock", os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	busy = errors.Is(flock(f, lockExclusive), errBusy)
	_ = flock(f, unlock)
	return f, busy
}
