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
func (d *worker) step(ctx context.Context) error {
	if d.outdated() {
		if err := d.read(ctx); err != nil {
			return err
		}
	}
	m := d.engine.moment(ctx, clockWait)
	if st, version := d.apply(m); st != nil {
		return d.store(ctx, st, version, m)
	}
	return nil
}

// outdated reports whether the record must be read again.
func (d *worker) outdated() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.old
}

// apply applies all jobs to a copy of the last state. It returns that, and the version that it replaces,
// if it must be stored. Otherwise it gives the jobs their answers. A job that is refused by a state from
// before it arrived gets none: the record must be read again.
func (d *worker) apply(m moment) (st *state, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st = d.state.clone()
	d.next = time.Time{}
	if left := st.prune(m, d.seen); left > 0 { // a lease ends
		d.next = m.now.Add(left)
	}
	changed := false
	for _, j := range d.jobs {
		switch j.answer, j.err = j.apply(st, m); j.answer {
		case joins, stored:
			changed = true
		case refused:
			switch {
			case j.unsure: // the store may still execute the attempt of unknown outcome
				changed = true
			case d.answered <= j.after:
				j.answer, d.old = unapplied, true
			}
		case awaitsClock: // the others go on
			j.waited.Unavailable(context.Background(), errNoClock)
			d.next = earliest(d.next, m.now.Add(clockPause))
		}
	}
	if d.keepPlaces(st, m, changed) || changed {
		return st, d.version
	}
	d.settle(st)
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
func (d *worker) keepPlaces(st *state, m moment, anyway bool) bool {
	workers := map[string]bool{}
	var own []*claim
	for i, w := range st.Waiters {
		workers[w.Client] = true
		if slices.ContainsFunc(d.jobs, func(j *job) bool { return j.acquires != nil && j.acquires.me.Owner == w.Owner }) {
			own = append(own, &st.Waiters[i])
		}
	}
	if len(own) == 0 {
		return false
	}
	life := placeTTL + time.Duration(len(workers))*morePlace
	left := life/3 - m.now.Sub(d.beat)
	due := left <= 0 || anyway
	if due {
		left = life / 3
		for _, w := range own {
			w.TTL = life.Microseconds()
			w.renew(m)
		}
	}
	d.next = earliest(d.next, m.now.Add(left))
	return due
}

// settle gives the jobs the answers that they have made of a state. The caller holds mu.
func (d *worker) settle(st *state) {
	for _, j := range slices.Clone(d.jobs) {
		a := j.acquires
		switch j.answer {
		case refused, stored:
			if a != nil && j.err == nil {
				d.grants = append(d.grants, a)
			}
			if a != nil && j.err == nil && a.req.OnLost != nil {
				d.holds[a.me.Owner] = a
			}
			d.finish(j, j.err)
		case waits, joins:
			a.queue(st)
		}
	}
}

// call makes one request to the store, when a slot is free.
func (d *worker) call(ctx context.Context, request func(context.Context) error) (err error) {
	slot, err := d.takeSlot(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.number++
	limit := callLimit
	for _, a := range d.holds {
		limit = min(limit, max(a.req.TTL/4, minTTL))
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	err = request(ctx)
	cancel()
	<-slot
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.answered = d.number
	}
	return err
}

// takeSlot waits for a free slot for a request, and takes it. If an urgent job arrives in the
// meantime, it waits for an urgent slot.
func (d *worker) takeSlot(ctx context.Context) (chan struct{}, error) {
	for {
		d.mu.Lock()
		slots := d.engine.slots
		if slices.ContainsFunc(d.jobs, (*job).urgent) {
			slots = d.engine.urgentSlots
		}
		d.mu.Unlock()
		select {
		case slots <- struct{}{}:
			return slots, nil
		case <-d.wake: // perhaps by an urgent job
			defer d.notify() // it is new for rest, too
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads the record.
func (d *worker) read(ctx context.Context) error {
	var rec driver.Record
	err := d.call(ctx, func(ctx context.Context) (err error) {
		rec, err = d.engine.records.Get(ctx, d.key)
		return err
	})
	if err != nil {
		return err
	}
	st, err := decode(d.name, rec.Value)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took(st, rec.Version, time.Now())
	return nil
}

// took keeps a state as the last one. Leases that it shows for the first time count from now, after
// the answer, since their holders may have renewed them until shortly before. The caller holds mu.
func (d *worker) took(st *state, version string, now time.Time) {
	if d.state == nil || d.state.Last != st.Last || len(d.state.Holders) != len(st.Holders) {
		d.changed = now
	}
	d.state, d.version, d.at, d.old = st, version, now, false
	d.seen = d.seen.note(st, now)
	for owner, a := range d.holds {
		if st.holder(owner) == nil {
			delete(d.holds, owner)
			d.engine.tasks.Go(func() { a.req.OnLost(a.cause(st)) }) // ends at once: it does not block
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
func (d *worker) store(ctx context.Context, st *state, from string, m moment) error {
	var version string
	err := d.call(ctx, func(ctx context.Context) (err error) {
		version, err = d.engine.records.Swap(ctx, d.key, encode(st), from, st.lone(m))
		return err
	})
	return d.wrote(st, version, err, m, time.Now())
}

// wrote gives the jobs the answers that they have made of st, which was decided at m, once the store has
// answered at now.
func (d *worker) wrote(st *state, version string, err error, m moment, now time.Time) error {
	if err == nil && m.age(now) > storeLimit {
		err = errLate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.beat = m.now
		d.settle(st)
		d.took(st, version, now)
		return nil
	case !errors.Is(err, driver.ErrConflict) && !final(err): // it may have been stored, or may still be
		for _, j := range d.jobs {
			j.unsure = j.unsure || j.writes()
		}
	}
	d.old = true
	return err
}
