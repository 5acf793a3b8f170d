package filelock

import (
	"cmp"
	"os"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limits"
)

// A queue is the state of a name's tickets as a request sees it. It is valid only under the
// directory lock. files are the open tickets of the holders, in the same order.
type queue struct {
	lock     *nameLock
	me       ticket
	override int      // the limit set by Resize, if me has a limit; 0 for none
	before   []ticket // waiting ahead of me, the nearest last
	holders  []ticket // alive
	last     int64    // the last place in use
	files    []*os.File
}

// queueOf reads the tickets of a name from the point of view of me. The caller must close the
// queue.
func (g *nameLock) queueOf(me ticket) (*queue, error) {
	all, err := g.tickets()
	if err != nil {
		return nil, err
	}
	q := &queue{lock: g, me: me}
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

// check rejects a shared request whose limit differs from that of the others, unless Resize has set
// one.
func (q *queue) check() error {
	if q.me.mode != driver.Shared {
		return nil
	}
	for _, t := range append(q.holders, q.before...) {
		if t.mode != driver.Shared || t.limit == q.me.limit || q.override > 0 && t.limit > 0 {
			continue
		}
		if !t.held {
			f, err := q.lock.openTicket(t)
			if err != nil || f == nil {
				continue
			}
			f.Close()
		}
		return limits.Differ(q.lock.name, t.limit, q.me.limit)
	}
	return nil
}

// obstacle returns what keeps me from holding, nil if nothing does. A waiter ahead of me counts
// only if it is alive and not frozen; a frozen one keeps its place. If there are several, the
// nearest is the blocker: it is woken in time by its own predecessor, so a release need not wake
// the whole queue. k knows the waiters of this process.
func (q *queue) obstacle(k *waker) (*blocker, error) {
	shared := q.me.mode == driver.Shared
	beside := slices.Clone(q.holders) // me, and the waiters ahead of me that could share the lock with me
	var nearest *blocker
	for i := len(q.before) - 1; i >= 0; i-- {
		t := q.before[i]
		together := shared && t.mode == driver.Shared
		if together && q.me.limit == 0 { // it can hold as soon as I can
			continue // goes when I can go
		}
		o, err := q.waiter(t, k)
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

// among is the part of obstacle for a request with no waiter ahead, or only with waiters (the
// nearest is given) beside which it may hold if the limit allows it.
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

// fits reports whether the limit leaves capacity for me beside others. Alone I always fit: the
// limit may have been reduced below my weight.
func (q *queue) fits(beside []ticket) bool {
	limit := cmp.Or(q.override, q.me.limit)
	for _, t := range beside { // avoid overflow with large weights
		limit = max(0, limit) - t.units() // huge weights must not wrap around
	}
	return len(beside) == 0 || q.me.units() <= limit
}

// take moves the first n open tickets to a blocker.
func (q *queue) take(n int) []*os.File {
	files := q.files[:n:n]
	q.files = q.files[n:]
	return files
}

// waiter returns the blocker for a waiter ahead of me, nil if it is dead or frozen.
func (q *queue) waiter(t ticket, k *waker) (*blocker, error) {
	f, err := q.lock.openTicket(t)
	if f == nil || err != nil {
		return nil, err
	}
	o := &blocker{owner: t.owner, waiting: q.lock.pathOf(t.fileName()), files: []*os.File{f}}
	if _, own := k.of(t.owner); own {
		return o, nil // in this process, so it is not frozen while we run
	}
	r, _, _ := readRecord(f) // without a readable record it counts as long as it is stamped
	o.paused = func() bool { return isPaused(f, r) }
	if o.paused() {
		o.close()
		return nil, nil
	}
	return o, nil
}

// behind adds to a blocker my place and who is in the way: the oldest holder, or else the waiter
// whose ticket is f, which may be nil.
func (q *queue) behind(o *blocker, f *os.File) *blocker {
	o.position = len(q.before) + 1
	o.held = &driver.HeldError{Name: q.lock.name}
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
		o.held.Owner, o.held.Identity, o.held.Since = r.Owner, r.Identity(), r.Since
	}
	return o
}

// floor returns the lowest of token and the holders' tokens.
func (q *queue) floor(token int64) int64 {
	for _, f := range q.files {
		if r, _, err := readRecord(f); err == nil && r.Token > 0 {
			token = min(token, r.Token)
		}
	}
	return token
}
