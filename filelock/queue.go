package filelock

import (
	"cmp"
	"os"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// A queue is what a request finds behind the gate. It is true only as long as the request
// is inside. Its files are the holders' tickets, open, in the same order.
type queue struct {
	gate     *nameLock
	me       ticket
	override int      // the limit that Resize has set, if I ask with one; 0 for none
	before   []ticket // waiting in front of me, nearest last
	holders  []ticket // alive
	last     int64    // the last place that anybody has
	files    []*os.File
}

// queueOf sorts the tickets of a name as the one in me sees them. The caller
// closes files.
func (g *nameLock) queueOf(me ticket) (*queue, error) {
	all, err := g.tickets()
	if err != nil {
		return nil, err
	}
	q := &queue{gate: g, me: me}
	if me.limit > 0 {
		if q.override, err = g.override(); err != nil {
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

// obstacle returns what keeps me from holding, nil if nothing does. A waiter in
// front of me counts only while it lives and is not frozen; it keeps its place.
// Of several the nearest is the blocker: it hears of its own in time, and so
// no release wakes the whole queue. Waiters of this process are among the bells.
func (q *queue) obstacle(bells *bells) (*blocker, error) {
	shared := q.me.mode == driver.Shared
	beside := slices.Clone(q.holders) // me, with those before me who will hold too
	var nearest *blocker
	for i := len(q.before) - 1; i >= 0; i-- {
		t := q.before[i]
		together := shared && t.mode == driver.Shared
		if together && q.me.limit == 0 {
			continue // goes when I can go
		}
		o, err := q.waiter(t, bells)
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
		if !together || q.me.seq < noPlace {
			return q.behind(nearest, nearest.files[0]), nil
		}
		beside = append(beside, t)
	}
	return q.among(nearest, beside), nil
}

// among is obstacle for one who stands behind nobody, or only behind waiters,
// the nearest of them given, beside whom it may hold if all fit.
func (q *queue) among(nearest *blocker, beside []ticket) *blocker {
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
func (q *queue) waiter(t ticket, bells *bells) (*blocker, error) {
	f, err := q.gate.openTicket(t)
	if f == nil || err != nil {
		return nil, err
	}
	o := &blocker{owner: t.owner, waiting: q.gate.pathOf(t.fileName()), files: []*os.File{f}}
	if _, own := bells.of(t.owner); own {
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
