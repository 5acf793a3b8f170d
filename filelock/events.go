package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// watchEvery is how often Watch polls. A crash causes no event.
const watchEvery = 200 * time.Millisecond

// Watch reports what happens to names; see [driver.Watcher]. It does not report what begins and
// ends between two polls. These are a few milliseconds apart while something happens to a name it
// has seen, and 200 ms otherwise.
func (e *Engine) Watch(ctx context.Context, q driver.Query, fn func(driver.Event) error) error {
	w := &watch{
		dir: &e.dir, query: q, fn: fn, watcher: watcher{poll: e.waker.polls, top: e.dir.path},
		seen: map[string]*seenTicket{}, subs: map[string]*subscription{}, woken: make(chan struct{}, 1),
	}
	defer w.close()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.woken:
		case <-tick.C:
		}
	}
}

// A watch is one call of Watch.
type watch struct {
	dir     *directory
	query   driver.Query
	fn      func(driver.Event) error
	watcher watcher                  // separate from that of the holds, as Config.Poll concerns only those
	seen    map[string]*seenTicket   // by owner
	subs    map[string]*subscription // by directory
	woken   chan struct{}            // signals that something may have happened
}

// A seenTicket is a ticket that Watch has reported. Its file stays open, because an ending is
// written to it before the ticket is removed.
type seenTicket struct {
	name  string
	held  bool
	event driver.Event
	file  *os.File
}

// close ends the subscriptions. The watcher ends at its next poll.
func (w *watch) close() {
	for _, s := range w.subs {
		w.watcher.unsubscribe(s)
	}
	for _, s := range w.seen {
		s.file.Close()
	}
}

// followOnly makes the watch wake for changes in the directories of names, and for names that come
// into use, but for nothing else.
func (w *watch) followOnly(names []string) {
	dirs := map[string]bool{w.dir.path: true, filepath.Join(w.dir.path, usedDir): true}
	for _, name := range names {
		dirs[w.dir.nameLock(name).path] = true
	}
	for dir, s := range w.subs {
		if !dirs[dir] {
			w.watcher.unsubscribe(s)
			delete(w.subs, dir)
		}
	}
	for dir := range dirs {
		if w.subs[dir] == nil {
			w.subs[dir] = w.watcher.subscribe(dir, func(string) { signal(w.woken) })
		}
	}
}

// look compares the current tickets with those reported before, and reports the differences: ends
// before beginnings, so that a hand-over is reported in order.
func (w *watch) look(ctx context.Context) error {
	p := &patience{w.dir.listing}
	names, err := w.dir.names(ctx, p, w.query)
	if err != nil {
		return err
	}
	w.followOnly(names)
	now := map[string]*seenTicket{} // by owner; tickets that are reported move to w.seen
	defer func() {
		for _, s := range now {
			s.file.Close()
		}
	}()
	for _, name := range names {
		switch err := w.sight(ctx, p, name, now); {
		case errors.Is(err, fs.ErrNotExist): // swept meanwhile, or never used
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return w.dir.unavailable(err)
		}
	}
	return w.diff(now)
}

// sight adds the live tickets of a name to now. It also removes an idle name from those in use,
// unless it was asked for exactly, to make the next poll cheaper.
func (w *watch) sight(ctx context.Context, p *patience, name string, now map[string]*seenTicket) error {
	g, _, err := w.dir.peek(ctx, p, name)
	if err != nil {
		return err
	}
	defer g.leave()
	all, err := g.tickets()
	if err != nil {
		return err
	}
	idle := g.inside && !w.query.Exact
	for _, t := range all {
		f, err := g.openTicket(t)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		idle = false
		r, _, _ := readRecord(f) // a record that cannot be read is left out
		s := &seenTicket{name: name, held: t.held, file: f}
		s.event = driver.Event{Identity: r.Identity(), Kind: driver.EventWaiting, Name: name, Owner: t.owner, Time: r.Since}
		if t.held {
			s.event.Kind, s.event.Token = driver.EventAcquired, r.Token
		}
		now[t.owner] = s
	}
	if idle {
		g.unmarkIdle()
	}
	return nil
}

// diff reports the differences and moves new tickets from now to w.seen. look closes those that
// remain in now.
func (w *watch) diff(now map[string]*seenTicket) error {
	for owner, s := range w.seen {
		if now[owner] != nil {
			continue
		}
		delete(w.seen, owner)
		ev := s.ended()
		s.file.Close()
		if err := w.fn(ev); err != nil {
			return err
		}
	}
	fresh := make([]*seenTicket, 0, len(now)) // the new ones, and those that have turned from waiting to holding
	for owner, s := range now {
		if old := w.seen[owner]; old == nil || old.held != s.held {
			fresh = append(fresh, s)
		}
	}
	slices.SortFunc(fresh, func(a, b *seenTicket) int {
		if c := a.event.Time.Compare(b.event.Time); c != 0 {
			return c
		}
		return strings.Compare(a.event.Owner, b.event.Owner)
	})
	for _, s := range fresh {
		owner := s.event.Owner
		if old := w.seen[owner]; old != nil {
			old.file.Close()
		}
		w.seen[owner] = s
		delete(now, owner)
		if err := w.fn(s.event); err != nil {
			return err
		}
	}
	return nil
}

// ended returns the event for a ticket that is gone.
func (s *seenTicket) ended() driver.Event {
	ev := s.event
	ev.Time = time.Now()
	_, end, err := readRecord(s.file)
	switch {
	case !s.held && end.End == "": // if it was granted meanwhile, it has an ending of its own
		ev.Kind = driver.EventLeft
	case err == nil && end.End == "released":
		ev.Kind = driver.EventReleased
	default:
		ev.Kind = driver.EventLost
	}
	return ev
}
