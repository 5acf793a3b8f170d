package filelock

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// How often a watcher looks by itself at what the system does not tell it, and at
// everything. An idle watcher ends at the next look.
const (
	checkEvery = time.Second            // with file events, or with many to look at
	pollEvery  = 100 * time.Millisecond // without, as long as there are few
	pollFew    = 100
	checkAll   = 10 // every so many looks at everything
)

// A watcher tells the holders and watches of one engine what comes to and goes from
// directories. It has one inotify instance at most. Where the system gives none,
// or no more, it looks by itself.
type watcher struct {
	poll bool   // without file events; set before the first use
	top  string // the directory above all that it watches

	mu      sync.Mutex  // guards all below; no event is called under it, and nothing there blocks
	place   os.FileInfo // of top, when it was last looked at
	subs    map[string]map[*subscription]struct{}
	watched map[string]int // watch descriptors, by path
	paths   map[int]string // the other way round
	source  *notifier      // nil without file events
	running bool
}

// A subscription hears of one directory. event must not block; an empty base means "look
// at everything".
type subscription struct {
	path  string
	event func(base string)
}

// subscribe starts to tell event about a directory, until unsubscribe. The directory need
// not be there yet: it is looked for until it is.
func (h *watcher) subscribe(path string, event func(base string)) *subscription {
	s := &subscription{path: path, event: event}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs, h.watched, h.paths = map[string]map[*subscription]struct{}{}, map[string]int{}, map[int]string{}
	}
	if h.subs[path] == nil {
		h.subs[path] = map[*subscription]struct{}{}
	}
	h.subs[path][s] = struct{}{}
	if !h.running {
		h.running = true
		h.start()
	}
	h.watch(path)
	return s
}

// start starts to listen and to look. The caller has mu.
func (h *watcher) start() {
	h.place, _ = os.Stat(h.top)
	if !h.poll {
		h.source, _ = newNotifier() // nil if the user has no more of them
	}
	if h.source != nil {
		go h.listen(h.source)
	}
	go h.run()
}

// watch makes sure that the system tells of a directory. The caller has mu.
func (h *watcher) watch(path string) {
	if _, ok := h.watched[path]; ok || h.source == nil {
		return
	}
	if wd, err := h.source.add(path); err == nil {
		h.watched[path], h.paths[wd] = wd, path
	}
}

// unwatch undoes watch. The caller has mu.
func (h *watcher) unwatch(path string) {
	if wd, ok := h.watched[path]; ok {
		h.source.remove(wd)
		delete(h.watched, path)
		delete(h.paths, wd)
	}
}

// unsubscribe ends a subscription. A call of its event may still be under way.
func (h *watcher) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[s.path], s) // the path itself goes at the next look
}

// listen passes events on. It ends when its source is closed.
func (h *watcher) listen(source *notifier) {
	for {
		events, err := source.read()
		if err != nil {
			return
		}
		for _, ev := range events {
			h.pass(ev)
		}
	}
}

// pass tells who has to know of an event.
func (h *watcher) pass(ev event) {
	if ev.overflow {
		h.all(true)
		return
	}
	h.mu.Lock()
	path, ok := h.paths[ev.wd]
	if ok && ev.gone {
		h.unwatch(path)
	}
	h.mu.Unlock()
	if ok {
		h.tell(path, ev.base)
	}
}

// tell tells the subscribers of a path. They are called without the mutex, since they may
// subscribe and unsubscribe.
func (h *watcher) tell(path, base string) {
	h.mu.Lock()
	list := slices.Collect(maps.Keys(h.subs[path]))
	h.mu.Unlock()
	for _, s := range list {
		s.event(base)
	}
}

// run looks from time to time. It ends at the first look that finds no
// subscription.
func (h *watcher) run() {
	for n := 0; ; n++ {
		time.Sleep(h.pause())
		if !h.look(n%checkAll == 0) {
			return
		}
	}
}

// look looks at what the system does not tell of, or at everything. It returns false when there is
// no subscription.
func (h *watcher) look(everybody bool) bool {
	moved := h.moved()
	if !h.tidy() {
		return false
	}
	h.all(everybody || moved)
	return true
}

// moved reports whether the directory above has gone, or is another one than at the last look.
// The system tells of a directory that is moved, and not of those below it.
func (h *watcher) moved() bool {
	now, err := os.Stat(h.top)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && h.place != nil && os.SameFile(h.place, now) {
		return false
	}
	h.place = now
	for path := range h.watched {
		h.unwatch(path) // it is the old one
	}
	return true
}

// pause returns how long to wait for the next look.
func (h *watcher) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) > pollFew || len(h.watched) >= len(h.subs) {
		return checkEvery
	}
	return pollEvery
}

// all makes those look of whose directories the system does not tell, or
// everybody.
func (h *watcher) all(everybody bool) {
	h.mu.Lock()
	var paths []string
	for path := range h.subs {
		if _, ok := h.watched[path]; everybody || !ok {
			paths = append(paths, path)
		}
	}
	h.mu.Unlock()
	for _, path := range paths {
		h.tell(path, "")
	}
}

// tidy forgets directories nobody asks for any more and watches again those that
// were replaced. It returns false when nothing is left, and run must end.
func (h *watcher) tidy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, subs := range h.subs {
		if len(subs) > 0 {
			h.watch(path)
			continue
		}
		h.unwatch(path)
		delete(h.subs, path)
	}
	h.running = len(h.subs) > 0
	if !h.running && h.source != nil {
		h.source.close()
		h.source = nil
	}
	return h.running
}

// An event is what the system tells of a watched directory.
type event struct {
	wd       int
	base     string // what came or went there; empty for the directory itself
	gone     bool   // the directory was removed or moved: the watch is of no use any more
	overflow bool   // some events were dropped
}
