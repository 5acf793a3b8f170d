package recordlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// step applies all jobs to the last state once, and stores the result if they have changed it. It first
// reads the record if that is due.
func (w *worker) step(ctx context.Context) error {
	if w.outdated() {
		if err := w.read(ctx); err != nil {
			return err
		}
	}
	m := w.engine.moment(ctx, clockWait)
	if st, version := w.apply(m); st != nil {
		return w.store(ctx, st, version, m)
	}
	return nil
}

// outdated reports whether the record must be read again.
func (w *worker) outdated() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.old
}

// apply applies all jobs to a copy of the last state. It returns that, and the version that it replaces,
// if it must be stored. Otherwise it gives the jobs their answers. A job that is refused by a state from
// before it arrived gets none: the record must be read again.
func (w *worker) apply(m moment) (st *state, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st = w.state.clone()
	w.next = time.Time{}
	if left := st.prune(m, w.seen); left > 0 { // a lease ends
		w.next = m.now.Add(left)
	}
	changed := false
	for _, j := range w.jobs {
		switch j.answer, j.err = j.apply(st, m); j.answer {
		case joins, stored:
			changed = true
		case refused:
			switch {
			case j.unsure: // the store may still execute the attempt of unknown outcome
				changed = true
			case w.answered <= j.after:
				j.answer, w.old = unapplied, true
			}
		case awaitsClock: // the others go on
			j.waited.Unavailable(context.Background(), errNoClock)
			w.next = earliest(w.next, m.now.Add(clockPause))
		}
	}
	if w.keepPlaces(st, m, changed) || changed {
		return st, w.version
	}
	w.settle(st)
	return nil, ""
}

// The places of a process last so long if it does not renew them, and longer the more processes
// write the record.
const (
	placeTTL  = 4 * time.Second
	morePlace = 250 * time.Millisecond
)

// keepPlaces renews the places of the worker among the waiters when that is due, or if the state is
// stored anyway. It reports whether it has, and notes when it is due next. The caller holds mu.
func (w *worker) keepPlaces(st *state, m moment, anyway bool) bool {
	workers := map[string]bool{}
	var own []*claim
	for i, c := range st.Waiters {
		workers[c.Client] = true
		if slices.ContainsFunc(w.jobs, func(j *job) bool { return j.acquires != nil && j.acquires.me.Owner == c.Owner }) {
			own = append(own, &st.Waiters[i])
		}
	}
	if len(own) == 0 {
		return false
	}
	life := placeTTL + time.Duration(len(workers))*morePlace
	left := life/3 - m.now.Sub(w.beat)
	due := left <= 0 || anyway
	if due {
		left = life / 3
		for _, c := range own {
			c.TTL = life.Microseconds()
			c.renew(m)
		}
	}
	w.next = earliest(w.next, m.now.Add(left))
	return due
}

// settle gives the jobs the answers that they have made of a state. The caller holds mu.
func (w *worker) settle(st *state) {
	for _, j := range slices.Clone(w.jobs) {
		a := j.acquires
		switch j.answer {
		case refused, stored:
			if a != nil && j.err == nil {
				w.grants = append(w.grants, a)
			}
			if a != nil && j.err == nil && a.req.OnLost != nil {
				w.holds[a.me.Owner] = a
			}
			w.finish(j, j.err)
		case waits, joins:
			a.queue(st)
		}
	}
}

// call makes one request to the store, when a slot is free.
func (w *worker) call(ctx context.Context, request func(context.Context) error) (err error) {
	slot, err := w.takeSlot(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.number++
	limit := callLimit
	for _, a := range w.holds {
		limit = min(limit, max(a.req.TTL/4, minTTL))
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	err = request(ctx)
	cancel()
	<-slot
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.answered = w.number
	}
	return err
}

// takeSlot waits for a free slot for a request, and takes it. If an urgent job arrives in the
// meantime, it waits for an urgent slot.
func (w *worker) takeSlot(ctx context.Context) (chan struct{}, error) {
	for {
		w.mu.Lock()
		slots := w.engine.slots
		if slices.ContainsFunc(w.jobs, (*job).urgent) {
			slots = w.engine.urgentSlots
		}
		w.mu.Unlock()
		select {
		case slots <- struct{}{}:
			return slots, nil
		case <-w.wake: // perhaps by an urgent job
			defer w.notify() // it is new for rest, too
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads the record.
func (w *worker) read(ctx context.Context) error {
	var rec driver.Record
	err := w.call(ctx, func(ctx context.Context) (err error) {
		rec, err = w.engine.records.Get(ctx, w.key)
		return err
	})
	if err != nil {
		return err
	}
	st, err := decode(w.name, rec.Value)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took(st, rec.Version, time.Now())
	return nil
}

// took keeps a state as the last one. Leases that it shows for the first time count from now, after
// the answer, since their holders may have renewed them until shortly before. The caller holds mu.
func (w *worker) took(st *state, version string, now time.Time) {
	if w.state == nil || w.state.Last != st.Last || len(w.state.Holders) != len(st.Holders) {
		w.changed = now
	}
	w.state, w.version, w.at, w.old = st, version, now, false
	w.seen = w.seen.note(st, now)
	for owner, a := range w.holds {
		if st.holder(owner) == nil {
			delete(w.holds, owner)
			w.engine.tasks.Go(func() { a.req.OnLost(a.cause(st)) }) // ends at once: it does not block
		}
	}
}

// cause returns why the holder is not in a state.
func (a *acquiring) cause(st *state) error {
	if a.grant.Token < st.Broken {
		return fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, st.Name, cmp.Or(st.Reason, "no reason given"))
	}
	return fmt.Errorf("%w: the lease of %q has expired, another process has adopted it, or its record was deleted", driver.ErrLost, st.Name)
}

// storeLimit is the longest time from the decision about a change to the answer of the store. If this
// process was frozen in between, another record of the name, with greater tokens, may have expired.
const storeLimit = time.Minute

var errLate = fmt.Errorf("%w: a change was stored too late, and is repeated", driver.ErrUnavailable)

// store stores a change, and gives the jobs their answers.
func (w *worker) store(ctx context.Context, st *state, from string, m moment) error {
	var version string
	err := w.call(ctx, func(ctx context.Context) (err error) {
		version, err = w.engine.records.Swap(ctx, w.key, encode(st), from, st.lone(m))
		return err
	})
	return w.wrote(st, version, err, m, time.Now())
}

// wrote gives the jobs the answers that they have made of st, which was decided at m, once the store has
// answered at now.
func (w *worker) wrote(st *state, version string, err error, m moment, now time.Time) error {
	if err == nil && m.age(now) > storeLimit {
		err = errLate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.beat = m.now
		w.settle(st)
		w.took(st, version, now)
		return nil
	case !errors.Is(err, driver.ErrConflict) && !final(err): // it may have been stored, or may still be
		for _, j := range w.jobs {
			j.unsure = j.unsure || j.writes()
		}
	}
	w.old = true
	return err
}
