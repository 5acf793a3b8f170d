package filelock

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// checkEvery is how often everything is looked at whether or not the system
// has told of a change, and how long an idle watcher lives.
const checkEvery = time.Second

// A hub tells waiters and holders of one engine what is removed from the
// directories of their names. Where the system gives no watcher, only the
// regular check remains, and waiters look for themselves anyway.
type hub struct {
	mu      sync.Mutex // guards all below; no event is called under it
	subs    map[string]map[*sub]struct{}
	watched map[string]bool // directories the watcher knows
	watcher *fsnotify.Watcher
	running bool
}

// A sub hears of one directory. event must not block; an empty base means
// "look at everything".
type sub struct {
	dir   string
	event func(base string)
}

// subscribe starts to tell event about dir, until unsubscribe.
func (h *hub) subscribe(dir string, event func(base string)) *sub {
	s := &sub{dir: dir, event: event}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs, h.watched = map[string]map[*sub]struct{}{}, map[string]bool{}
	}
	if h.subs[dir] == nil {
		h.subs[dir] = map[*sub]struct{}{}
	}
	h.subs[dir][s] = struct{}{}
	if !h.running {
		h.running = true
		h.watcher, _ = fsnotify.NewWatcher() // nil if the system has no more
		go h.run(h.watcher)
	}
	h.watch(dir)
	return s
}

// watch makes sure that the watcher knows dir. The caller has mu.
func (h *hub) watch(dir string) {
	if h.watcher != nil && !h.watched[dir] {
		h.watched[dir] = h.watcher.Add(dir) == nil
	}
}

// unsubscribe ends a subscription. A call of its event may still be under way.
func (h *hub) unsubscribe(s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[s.dir], s) // the directory itself goes at the next check
}

// run passes events on. It ends at the first check that finds no subscription.
func (h *hub) run(w *fsnotify.Watcher) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w != nil {
		defer w.Close()
		events, errs = w.Events, w.Errors
	}
	for {
		select {
		case ev := <-events:
			h.pass(ev)
		case <-errs: // events were dropped
			h.all()
		case <-tick.C:
			if !h.tidy() {
				return
			}
			h.all()
		}
	}
}

// pass tells who has to know of an event.
func (h *hub) pass(ev fsnotify.Event) {
	h.mu.Lock()
	_, itself := h.subs[ev.Name]
	if itself && ev.Has(fsnotify.Remove|fsnotify.Rename) {
		h.watched[ev.Name] = false
	}
	h.mu.Unlock()
	if itself {
		h.wake(ev.Name, "")
	} else if ev.Has(fsnotify.Remove | fsnotify.Rename | fsnotify.Create) {
		h.wake(filepath.Dir(ev.Name), filepath.Base(ev.Name))
	}
}

// wake tells everybody in dir about a file.
func (h *hub) wake(dir, base string) {
	h.mu.Lock()
	list := make([]*sub, 0, len(h.subs[dir]))
	for s := range h.subs[dir] {
		list = append(list, s)
	}
	h.mu.Unlock()
	for _, s := range list {
		s.event(base)
	}
}

// all makes everybody look.
func (h *hub) all() {
	h.mu.Lock()
	dirs := make([]string, 0, len(h.subs))
	for dir := range h.subs {
		dirs = append(dirs, dir)
	}
	h.mu.Unlock()
	for _, dir := range dirs {
		h.wake(dir, "")
	}
}

// tidy forgets directories nobody asks for any more and watches again those that
// were replaced. It returns false when nothing is left, and run must end.
func (h *hub) tidy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for dir, subs := range h.subs {
		if len(subs) > 0 {
			h.watch(dir)
			continue
		}
		if h.watched[dir] {
			_ = h.watcher.Remove(dir)
		}
		delete(h.subs, dir)
		delete(h.watched, dir)
	}
	h.running = len(h.subs) > 0
	return h.running
}
