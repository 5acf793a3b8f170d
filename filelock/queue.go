package filelock

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// staleAfter is the age at which a waiting ticket that was not stamped again
// belongs to a frozen process and is passed over.
const staleAfter = 5 * time.Second

// A blocker is why a request is not granted now, and what to look at until
// it may be.
type blocker struct {
	held     *driver.HeldError
	position int
	until    time.Time // a minimum hold is in the way, until then
	busy     bool      // the lock itself is held, by somebody without a ticket
	any      bool      // any ticket that goes, or a new limit, may clear the way
	override int       // with any: the limit that Resize had set, 0 for none
	owner    string    // of the one ticket in the way, unless any
	waiting  string    // the path of that ticket if it waits, until it holds; else empty
	files    []*os.File
	paused   func() bool // the waiter in the way has frozen; nil for a holder
	told     bool        // the end of the holder's process is told
	process  *os.File    // through which it is told; nil if it is this one's
}

// close ends the watch over the blocker's tickets. A nil blocker has none.
func (o *blocker) close() {
	if o == nil {
		return
	}
	for _, f := range o.files {
		f.Close()
	}
	o.files = nil
	o.process.Close()
}

// attend makes bell ring when the process of the one holder in the way ends.
func (o *blocker) attend(e *Engine, bell chan<- struct{}) {
	if o.owner == "" || o.waiting != "" {
		return
	}
	if _, own := e.bell(o.owner); own {
		o.told = true
		return
	}
	if r, _, err := readRecord(o.files[0]); err == nil && r.Machine == machine() && !e.deaf {
		o.process = watchProcess(r.Process, bell)
		o.told = o.process != nil
	}
}

// gone reports whether a ticket in the way has died, was removed, has frozen, or
// does not wait any more.
func (o *blocker) gone() bool {
	if o.waiting != "" && isGone(o.files[0], o.waiting) {
		return true
	}
	for _, f := range o.files {
		if unlinked(f) || !errors.Is(flock(f, lockShared), errBusy) {
			return true
		}
	}
	return o.paused != nil && sinceStamp(o.files[0]) > 2*lookSeldom && o.paused()
}

// A queue is what a request finds behind the gate.
type queue struct {
	gate     *nameLock
	me       ticket
	override int      // the limit that Resize has set, if I ask with one; 0 for none
	before   []ticket // waiting in front of me, nearest last
	holders  []ticket // alive
	last     int64    // the last place that anybody has
	files    []*os.File
}

// line sorts the tickets of a name as the one in me sees them. The caller
// closes files.
func (g *nameLock) line(me ticket) (*queue, error) {
	all, err := g.tickets()
	if err != nil {
		return nil, err
	}
	q := &queue{gate: g, me: me}
	if me.limit > 0 {
		if q.override, err = g.limit(); err != nil {
			return nil, err
		}
	}
	for _, t := range all {
		q.last = t.seq
		switch {
		case t.owner == me.owner:
		case !t.held:
			if t.seq < me.seq {
				q.before = append(q.before, t)
			}
		default:
			f, err := g.openTicket(t)
			if err != nil {
				q.close()
				return nil, err
			}
			if f != nil {
				q.holders, q.files = append(q.holders, t), append(q.files, f)
			}
		}
	}
	return q, nil
}

func (q *queue) close() {
	for _, f := range q.files {
		f.Close()
	}
	q.files = nil
}

// check refuses a shared request whose limit is not that of the others, unless
// Resize has set one for all who have any.
func (q *queue) check() error {
	if q.me.mode != driver.Shared {
		return nil
	}
	for _, t := range append(q.holders, q.before...) {
		if t.mode != driver.Shared || t.limit == q.me.limit || q.override > 0 && t.limit > 0 {
			continue
		}
		if !t.held {
			f, err := q.gate.openTicket(t)
			if err != nil || f == nil {
				continue
			}
			f.Close()
		}
		return driver.LimitError(q.gate.name, t.limit, q.me.limit)
	}
	return nil
}

// blocker returns what keeps me from holding, nil if nothing does. A waiter in
// front of me counts only while it lives and is not frozen; it keeps its place.
// Of several the nearest is the blocker: it hears of its own in time, and so
// no release wakes the whole queue.
func (q *queue) obstacle() (*blocker, error) {
	shared := q.me.mode == driver.Shared
	beside := slices.Clone(q.holders) // me, with those before me who will hold too
	var nearest *blocker
	for i := len(q.before) - 1; i >= 0; i-- {
		t := q.before[i]
		together := shared && t.mode == driver.Shared
		if together && q.me.limit == 0 {
			continue // goes when I can go
		}
		o, err := q.waiter(t)
		if err != nil {
			nearest.close()
			return nil, err
		}
		if o == nil {
			continue
		}
		if nearest == nil {
			nearest = o
		} else {
			o.close()
		}
		if !together || q.me.placed() {
			return q.behind(nearest, nearest.files[0]), nil
		}
		beside = append(beside, t)
	}
	return q.held(nearest, beside), nil
}

// held is blocker for one who stands behind nobody, or only behind waiters,
// the nearest of them given, beside whom it may hold if all fit.
func (q *queue) held(nearest *blocker, beside []ticket) *blocker {
	together := q.me.mode == driver.Shared && (len(q.holders) == 0 || q.holders[0].mode == driver.Shared)
	switch {
	case (together || len(q.holders) == 0) && (q.me.limit == 0 || q.fits(beside)):
		nearest.close()
		return nil
	case nearest != nil:
		return q.behind(nearest, nearest.files[0])
	case together:
		return q.behind(&blocker{any: true, override: q.override, files: q.take(len(q.files))}, nil)
	}
	return q.behind(&blocker{owner: q.holders[0].owner, files: q.take(1)}, nil)
}

// fits reports whether the limit in force leaves me room beside others. Alone I
// always fit: the limit may have been lowered below my weight.
func (q *queue) fits(beside []ticket) bool {
	room := cmp.Or(q.override, q.me.limit)
	for _, t := range beside {
		room = max(0, room) - t.units() // huge weights must not wrap around
	}
	return len(beside) == 0 || q.me.units() <= room
}

// take moves the first n open tickets to a blocker.
func (q *queue) take(n int) []*os.File {
	files := q.files[:n:n]
	q.files = q.files[n:]
	return files
}

// waiter returns the blocker that a waiter in front of me is; nil if it died or
// has frozen.
func (q *queue) waiter(t ticket) (*blocker, error) {
	f, err := q.gate.openTicket(t)
	if f == nil || err != nil {
		return nil, err
	}
	o := &blocker{owner: t.owner, waiting: q.gate.path(t.base()), files: []*os.File{f}}
	if _, own := q.gate.engine.bell(t.owner); own {
		return o, nil // as awake as we are
	}
	r, _, _ := readRecord(f) // a strange one counts as long as it is stamped
	o.paused = func() bool { return isPaused(f, r) }
	if o.paused() {
		o.close()
		return nil, nil
	}
	return o, nil
}

// isPaused reports whether a waiter is stopped, or does not stamp its ticket any
// more.
func isPaused(f *os.File, r record) bool {
	age := sinceStamp(f)
	return age > staleAfter || age > 0 && r.Machine == machine() && stopped(r.Process)
}

// sinceStamp returns how old the stamp of a waiting ticket is. A stamp in the
// future is one before the clock was set back.
func sinceStamp(f *os.File) time.Duration {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return max(1, time.Since(info.ModTime()).Abs())
}

// behind completes a blocker with my place and with who is in the way: the
// oldest holder, or else the waiter whose ticket is f, which may be nil.
func (q *queue) behind(o *blocker, f *os.File) *blocker {
	o.position = len(q.before) + 1
	o.held = &driver.HeldError{Name: q.gate.name}
	switch {
	case len(o.files) > 0 && f == nil:
		f = o.files[0]
	case len(q.holders) > 0:
		f = q.files[0]
	}
	if f == nil {
		return o
	}
	if r, _, err := readRecord(f); err == nil {
		o.held.Owner, o.held.Identity, o.held.Since = r.Owner, r.identity(), r.Since
	}
	return o
}

// floor returns the smallest token among the holders and token.
func (q *queue) floor(token int64) int64 {
	for _, f := range q.files {
		if r, _, err := readRecord(f); err == nil && r.Token > 0 {
			token = min(token, r.Token)
		}
	}
	return token
}

// machine names this host in tickets.
func machine() string {
	host, _ := os.Hostname()
	return host
}
