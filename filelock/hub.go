package filelock

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// checkEvery is how often everything is looked at whether or not the system
// has told of a change, and how long an idle watcher lives.
const checkEvery = time.Second

// A hub tells waiters and holders of one engine what comes to and goes from the
// directories of their names, or what happens to one file there. Where the system gives no watcher, only the
// regular check remains, and waiters look for themselves anyway.
type hub struct {
	mu      sync.Mutex // guards all below; no event is called under it
	subs    map[string]map[*sub]struct{}
	watched map[string]bool // paths the watcher knows
	watcher *fsnotify.Watcher
	running bool
}

// A sub hears of one directory, or of one file in it. event must not block; an
// empty base means "look at everything".
type sub struct {
	path  string
	event func(base string)
}

// subscribe starts to tell event about path, until unsubscribe.
func (h *hub) subscribe(path string, event func(base string)) *sub {
	s := &sub{path: path, event: event}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs, h.watched = map[string]map[*sub]struct{}{}, map[string]bool{}
	}
	if h.subs[path] == nil {
		h.subs[path] = map[*sub]struct{}{}
	}
	h.subs[path][s] = struct{}{}
	if !h.running {
		h.running = true
		h.watcher, _ = fsnotify.NewWatcher() // nil if the system has no more
		go h.run(h.watcher)
	}
	h.watch(path)
	return s
}

// watch makes sure that the watcher knows path. The caller has mu.
func (h *hub) watch(path string) {
	if h.watcher != nil && !h.watched[path] {
		h.watched[path] = h.watcher.Add(path) == nil
	}
}

// unsubscribe ends a subscription. A call of its event may still be under way.
func (h *hub) unsubscribe(s *sub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[s.path], s) // the path itself goes at the next check
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
		h.tell(ev.Name, "")
	}
	if ev.Has(fsnotify.Remove | fsnotify.Rename | fsnotify.Create) {
		h.tell(filepath.Dir(ev.Name), filepath.Base(ev.Name))
	}
}

// wake tells everybody who listens to a directory, or to a file there, about it.
func (h *hub) wake(dir, base string) {
	h.tell(dir, base)
	h.tell(filepath.Join(dir, base), "")
}

// tell tells the subscribers of a path.
func (h *hub) tell(path, base string) {
	h.mu.Lock()
	list := make([]*sub, 0, len(h.subs[path]))
	for s := range h.subs[path] {
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
	paths := slices.Collect(maps.Keys(h.subs))
	h.mu.Unlock()
	for _, path := range paths {
		h.tell(path, "")
	}
}

// tidy forgets paths nobody asks for any more and watches again those that were
// replaced. It returns false when nothing is left, and run must end.
func (h *hub) tidy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, subs := range h.subs {
		if len(subs) > 0 {
			h.watch(path)
			continue
		}
		if h.watched[path] {
			_ = h.watcher.Remove(path)
		}
		delete(h.subs, path)
		delete(h.watched, path)
	}
	h.running = len(h.subs) > 0
	return h.running
}
