package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/internal/watch"
)

const (
	defaultInterval = 500 * time.Millisecond
	jobShare        = 100              // the hub spends at most 1/jobShare of its time listing jobs
	jobInterval     = 10 * time.Second // the least time between two lists of jobs
	patience        = 5 * time.Second  // how long a list may take
	jobPatience     = 30 * time.Second // the same for jobs
)

// hub reads the engine for all viewers together.
type hub struct {
	locks *fencelock.Locker
	cfg   Config

	looking sync.Mutex // held during a look, so there is one at a time
	next    time.Time  // when the next look is due; guarded by looking

	mu      sync.Mutex // guards what follows
	viewers map[*viewer]bool
	empty   chan struct{} // closed when the last viewer leaves
	past    history
	jobs    jobs
}

// viewer is one window that shows the page.
type viewer struct {
	changed  chan struct{} // has an element after a look
	wantJobs bool
}

// jobs is the last list of jobs.
type jobs struct {
	list []cron.Status
	err  error
	at   time.Time // when it was read; zero before the first list
	next time.Time // when it may be read again
}

func newHub(locks *fencelock.Locker, cfg Config) *hub {
	return &hub{locks: locks, cfg: cfg, viewers: map[*viewer]bool{}, past: newHistory(cfg)}
}

// join adds a viewer, unless there are too many. The first one starts the looks; others see the last
// one at once.
func (h *hub) join(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch len(h.viewers) {
	case maxViewers:
		return false
	case 0:
		h.empty = make(chan struct{})
		go h.run(h.empty) // ends when the last viewer leaves
	default:
		v.changed <- struct{}{}
	}
	h.viewers[v] = true
	return true
}

// leave removes a viewer.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 {
		close(h.empty)
	}
}

// run looks until empty is closed.
func (h *hub) run(empty <-chan struct{}) {
	for {
		pause := h.look()
		if h.wantsJobs() {
			h.readJobs()
		}
		h.tell()
		select {
		case <-time.After(pause):
		case <-empty:
			return
		}
	}
}

// wantsJobs reports whether a viewer shows jobs.
func (h *hub) wantsJobs() (wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.viewers {
		wanted = wanted || v.wantJobs
	}
	return wanted
}

// tell notifies every viewer. A viewer that has not yet read the last notice needs no other.
func (h *hub) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.viewers {
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
}

// look lists the locks if that is due, and returns how long the result is fresh.
func (h *hub) look() time.Duration {
	h.looking.Lock()
	defer h.looking.Unlock()
	asked := time.Now()
	if fresh := h.next.Sub(asked); fresh > 0 {
		return fresh
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience) // not of a viewer: others get the result too
	defer cancel()
	list, err := h.locks.List(ctx, h.cfg.Prefix)
	now := time.Now()
	pause := watch.Pause(h.cfg.Interval, now.Sub(asked))
	if err != nil { // a silent engine costs little, and may be back
		pause = min(pause, patience)
	}
	h.next = now.Add(pause)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.past.add(list, err, now, now.Sub(asked))
	return pause
}

// readJobs lists the jobs if that is due.
func (h *hub) readJobs() {
	h.mu.Lock()
	asked, next := time.Now(), h.jobs.next
	if !asked.Before(next) {
		h.jobs.next = asked.Add(jobPatience) // for a run that begins while this one still reads
	}
	h.mu.Unlock()
	if asked.Before(next) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), jobPatience)
	defer cancel()
	list, err := cron.List(ctx, h.locks, h.cfg.Prefix)
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = jobs{list: list, err: err, at: now, next: now.Add(max(jobInterval, (jobShare-1)*now.Sub(asked)))}
}
