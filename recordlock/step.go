package recordlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// change is a state that is to be stored, and what it means for the jobs.
type change struct {
	state   *state
	version string // the version that it replaces
	moment  moment // from before it is sent
	jobs    []*job // those that were applied
}

// step applies all jobs to the record once. It reads the record if it is not known, or if a job is
// refused by a state from before the job arrived.
func (d *desk) step(ctx context.Context) error {
	for {
		m := d.engine.clock.moment(ctx)
		c, old := d.apply(m)
		switch {
		case old:
			if err := d.read(ctx); err != nil {
				return err
			}
		case c == nil:
			return nil
		default:
			return d.store(ctx, c)
		}
	}
}

// apply applies all jobs to the last state. It returns what has to be stored. If nothing has to be,
// it gives the jobs their answers, unless old reports that these need a newer state.
func (d *desk) apply(m moment) (c *change, old bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.state == nil || d.last.old {
		return nil, true
	}
	st := d.last.state.clone()
	d.next = time.Time{}
	if left := st.prune(m, d.seen); left > 0 { // a lease ends
		d.next = m.now.Add(left)
	}
	c = &change{state: st, version: d.last.version, moment: m, jobs: slices.Clone(d.jobs)}
	slices.SortStableFunc(c.jobs, func(a, b *job) int { return cmp.Compare(a.rank(), b.rank()) })
	// A Swap of unknown outcome must find another version if the store executes it later.
	changed := d.doubt != nil
	for _, j := range c.jobs {
		j.answer, j.answered = j.apply(st, m)
		changed = changed || j.writes()
		if j.answer == blind { // the others go on
			j.heard.Unavailable(context.Background(), errBlind)
		}
		old = old || j.answer == refused && d.last.number <= j.after
	}
	if changed = d.keepPlaces(st, m, changed) || changed; !changed {
		if !old {
			d.settle(c)
		}
		return nil, old
	}
	for _, j := range c.jobs {
		j.sent = j.sent || j.writes()
	}
	return c, false
}

// keepPlaces renews the places of the desk among the waiters when that is due, or if the state is
// stored anyway. It reports whether it is due, and notes when it is due next. It removes places that
// nobody needs: those of requests that could not leave in time, and would be kept otherwise. The
// caller holds mu.
func (d *desk) keepPlaces(st *state, m moment, anyway bool) bool {
	st.Waiters = slices.DeleteFunc(st.Waiters, func(w claim) bool {
		return w.Client == d.id && !slices.ContainsFunc(d.jobs, func(j *job) bool { return j.acquires != nil && j.acquires.me.Owner == w.Owner })
	})
	waiting := map[string]bool{}
	for _, w := range st.Waiters {
		waiting[w.Client] = true
	}
	maps.DeleteFunc(st.Clients, func(id string, _ lease) bool { return !waiting[id] })
	if !waiting[d.id] {
		return false
	}
	l := st.Clients[d.id]
	due := m.now.Sub(d.beat) >= micros(l.TTL)/3
	if due || anyway {
		l.TTL = (placeTTL + time.Duration(len(waiting))*morePlace).Microseconds()
		l.renew(m)
		st.Clients[d.id] = l
		earlier(&d.next, m.now.Add(micros(l.TTL)/3))
	} else {
		earlier(&d.next, d.beat.Add(micros(l.TTL)/3))
	}
	return due
}

// The places of a process last so long if it does not renew them, and longer the more processes
// write the record.
const (
	placeTTL  = 4 * time.Second
	morePlace = 250 * time.Millisecond
)

// settle gives the jobs their answers. The caller holds mu.
func (d *desk) settle(c *change) {
	for _, j := range c.jobs {
		a := j.acquires
		switch {
		case j.finished(): // its caller has gone
		case j.left && a != nil && !errors.Is(j.answered, errGone): // the next step removes what this one has stored
		case j.answer == refused, j.answer == stored:
			if a != nil && j.answered == nil && a.req.OnLost != nil {
				d.holds[a.me.Owner] = &hold{token: a.grant.Token, until: c.moment.now.Add(a.req.TTL), ttl: a.req.TTL, lost: a.req.OnLost}
			}
			d.finish(j, j.answered)
		case j.answer != blind && a.found.Held != nil:
			a.queue(c.state)
		}
	}
}

// call makes one request to the store, when there is room for it. It returns the number of the
// request, and when the answer arrived.
func (d *desk) call(ctx context.Context, request func(context.Context) error) (number int64, arrived time.Time, err error) {
	d.mu.Lock()
	d.number++
	number, d.sent = d.number, time.Now()
	limit, room := callLimit, d.engine.calm
	for _, h := range d.holds {
		limit = min(limit, max(h.ttl/4, minTTL))
	}
	if slices.ContainsFunc(d.jobs, func(j *job) bool { return j.rank() == 0 }) {
		room = d.engine.urgent // it keeps a lease, or others wait for it
	}
	d.mu.Unlock()
	select {
	case room <- struct{}{}:
		ctx, cancel := context.WithTimeout(ctx, limit)
		err = request(ctx)
		cancel()
		<-room
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = time.Time{}
	return number, time.Now(), err
}

// read reads the record. Leases that the answer shows for the first time count from its arrival,
// since their holders may have renewed them until shortly before.
func (d *desk) read(ctx context.Context) error {
	var rec driver.Record
	number, arrived, err := d.call(ctx, func(ctx context.Context) (err error) {
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
	lost := d.took(st, rec.Version, number, arrived)
	d.mu.Unlock()
	callAll(lost)
	return nil
}

func callAll(callbacks []func()) {
	for _, f := range callbacks {
		f()
	}
}

// took keeps a state as the last one, and returns the callbacks of holders that it lacks. The caller
// holds mu.
func (d *desk) took(st *state, version string, number int64, at time.Time) (lost []func()) {
	if d.doubt != nil && *d.doubt != version {
		d.doubt = nil
	}
	if before := d.last.state; before == nil || before.Last != st.Last || len(before.Holders) != len(st.Holders) {
		d.changed = at
	}
	d.last = snapshot{st, false, version, number, at}
	d.seen.note(st, at)
	return d.lost(st, at)
}

// lost returns the callbacks of holders of this process that are not in the state. The caller holds
// mu.
func (d *desk) lost(st *state, now time.Time) (callbacks []func()) {
	for owner, h := range d.holds {
		if st.holder(owner) != nil {
			continue
		}
		delete(d.holds, owner)
		cause := fmt.Errorf("%w: the lease of %q has expired, another process has adopted it, or its record was deleted", driver.ErrLost, d.name)
		if now.Before(h.until) && h.token < st.Broken {
			cause = fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, d.name, cmp.Or(st.Reason, "no reason given"))
		}
		callbacks = append(callbacks, func() { h.lost(cause) })
	}
	return callbacks
}

// store stores a change and gives the jobs their answers.
func (d *desk) store(ctx context.Context, c *change) error {
	value, err := json.Marshal(c.state)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	var version string
	number, arrived, err := d.call(ctx, func(ctx context.Context) (err error) {
		version, err = d.engine.records.Swap(ctx, d.key, value, c.version, c.state.lone(c.moment))
		return err
	})
	var lost []func()
	defer func() { callAll(lost) }() // without the mutex
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.beat = c.moment.now
		d.settle(c)
		lost = d.took(c.state, version, number, arrived)
		return nil
	case errors.Is(err, driver.ErrConflict):
	case !final(err): // it may have been stored, or may still be
		d.doubt = &c.version
		for _, j := range c.jobs {
			j.unsure = j.unsure || j.writes()
		}
	}
	d.last.old = true
	return err
}
