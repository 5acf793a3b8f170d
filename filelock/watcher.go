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

// How often a watcher polls the directories that have no file events, and all directories. A
// watcher without subscriptions ends at the next poll.
const (
	checkEvery = time.Second            // with file events, or with many subscriptions
	pollEvery  = 100 * time.Millisecond // without file events, as long as there are few subscriptions
	pollFew    = 100
	checkAll   = 10 // every checkAll-th poll covers all directories
)

// A watcher reports changes in directories to the holds and watches of one engine. It uses at most
// one inotify instance, and polls if it cannot get one.
type watcher struct {
	poll bool   // do not use file events; set before the first use
	top  string // the directory that contains all watched ones

	mu      sync.Mutex  // guards all below; callbacks run without it, and nothing under it blocks
	place   os.FileInfo // of top, at the last poll
	subs    map[string]map[*subscription]struct{}
	watched map[string]int // watch descriptors, by path
	paths   map[int]string // the inverse of watched
	source  *notifier      // nil without file events
	running bool
}

// A subscription receives the events of one directory. event must not block. An empty base means
// that anything may have changed.
type subscription struct {
	path  string
	event func(base string)
}

// subscribe calls event for changes in a directory, until unsubscribe. The directory need not exist
// yet.
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

// start starts the goroutines. The caller has mu.
func (h *watcher) start() {
	h.place, _ = lookUp(h.top)
	if !h.poll {
		h.source, _ = newNotifier() // nil if the user has no instance left
	}
	if h.source != nil {
		go h.listen(h.source)
	}
	go h.run()
}

// watch requests file events for a directory. The caller has mu.
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

// unsubscribe ends a subscription. A call of its event may still be running.
func (h *watcher) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[s.path], s) // the path itself is removed at the next poll
}

// listen forwards file events until source is closed.
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

// pass forwards an event to the subscribers.
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

// tell calls the subscribers of a path. It calls them without the mutex, because they may subscribe
// and unsubscribe.
func (h *watcher) tell(path, base string) {
	h.mu.Lock()
	list := slices.Collect(maps.Keys(h.subs[path]))
	h.mu.Unlock()
	for _, s := range list {
		s.event(base)
	}
}

// run polls until there is no subscription.
func (h *watcher) run() {
	for n := 0; ; n++ {
		time.Sleep(h.pause())
		if !h.look(n%checkAll == 0) {
			return
		}
	}
}

// look polls the directories without file events, or all of them. It returns false when there is no
// subscription.
func (h *watcher) look(everybody bool) bool {
	moved := h.moved()
	if !h.tidy() {
		return false
	}
	h.all(everybody || moved)
	return true
}

// moved reports whether the top directory was removed or replaced since the last poll. There are
// events for a directory that is moved, but not for those below it.
func (h *watcher) moved() bool {
	now, err := lookUp(h.top)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && h.place != nil && os.SameFile(h.place, now) {
		return false
	}
	h.place = now
	for path := range h.watched {
		h.unwatch(path) // it belongs to the old directory
	}
	return true
}

// pause returns how long to wait before the next poll.
func (h *watcher) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) > pollFew || len(h.watched) >= len(h.subs) {
		return checkEvery
	}
	return pollEvery
}

// all reports to the subscribers of directories without file events, or to all subscribers, that
// anything may have changed.
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

// tidy removes directories without subscriptions and watches replaced ones again. It returns false
// when nothing is left and run must end.
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

// An event is a file event of a watched directory.
type event struct {
	wd       int
	base     string // the file that was added or removed; empty for the directory itself
	gone     bool   // the directory was removed or moved, so the watch has ended
	overflow bool   // some events were lost
}
