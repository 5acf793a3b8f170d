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

// List shows who holds and who waits, as the living tickets tell. A name whose
// gate is stuck, or one of whose files is damaged, says so in Status.Trouble and
// shows what can be seen from outside. If some names may not be read the others
// are returned, together with an ErrConfig that names the first of them.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	names, unread := e.names(q)
	var all []driver.Status
	for _, name := range names {
		s, err := e.status(ctx, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			if err = e.unavailable(err); errors.Is(err, driver.ErrConfig) {
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

// status describes one name. It goes through the gate if it can, so it sees no
// change half done.
func (e *Engine) status(ctx context.Context, name string) (s driver.Status, err error) {
	s.Name = name
	g, trouble, err := e.peek(ctx, name)
	if err != nil {
		return s, err
	}
	defer g.leave()
	s.Trouble = trouble
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
	if len(s.Holders) == 0 && g.inside {
		g.describeForeign(&s)
	}
	until, _, err := g.readNumber("not-before")
	if t := time.UnixMicro(until); t.After(time.Now()) {
		s.NotBefore = t
	}
	if err == nil && g.inside && len(s.Holders) == 0 && len(s.Waiters) == 0 && s.NotBefore.IsZero() {
		g.unmark()
	}
	return s, err
}

// describe adds a ticket to a status, if it lives.
func (g *nameLock) describe(s *driver.Status, t ticket) error {
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
func (g *nameLock) describeForeign(s *driver.Status) {
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
func (g *nameLock) busy() (f *os.File, busy bool) {
	f, err := g.openFile("lock", os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	busy = errors.Is(flock(f, lockExclusive), errBusy)
	_ = flock(f, unlock)
	return f, busy
}
