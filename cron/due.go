package cron

import (
	"context"
	"errors"
	"sync"
	"time"
)

// due is a cronhook.Due.
type due struct {
	job      *Job // one of its own: it knows its schedule
	schedule Schedule

	mu    sync.Mutex         // guards all below, and calls of schedule
	last  time.Time          // no tick up to this one is due again
	turn  context.Context    // of the ticks that Take returned last
	end   context.CancelFunc // ends it
	first time.Time          // the oldest of them; zero before
}

// newDue returns a due that begins now, or with Config.CatchUp as far back as Config.Late.
func (j *Job) newDue(s Schedule) (*due, error) {
	if j.invalid != nil {
		return nil, j.invalid
	}
	own := *j
	d := &due{job: &own, schedule: s, last: time.Now().Round(0)}
	d.turn, d.end = context.WithCancel(context.Background())
	if j.cfg.CatchUp > 0 {
		d.last = d.last.Add(-j.cfg.Late)
	}
	own.turnOf = d.turnOf
	own.after = func(tick time.Time) time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.next(tick, tick)
	}
	return d, nil
}

// Take is part of cronhook.Due.
func (d *due) Take(now time.Time) []time.Time {
	ticks, passed, past := d.take(now)
	if passed > 0 {
		d.job.cfg.Logger.Info("ticks passed over", "job", d.job.name, "ticks", passed, "until", ticks[0])
	}
	if !past.IsZero() {
		past = past.UTC()
		d.job.report(Run{Tick: past}, d.job.skipped(past, ReasonTooLate, nil))
	}
	return ticks
}

// take is Take, and also returns how many ticks were passed over, and the first tick that is
// past, or the zero time.
func (d *due) take(now time.Time) (ticks []time.Time, passed int, past time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.After(now.Add(early + d.job.cfg.Skew)) {
		d.last = now.Round(0) // the clock was ahead; what it saw is yet to come
	}
	if oldest := now.Add(-d.job.cfg.Late).Round(0); d.last.Before(oldest) {
		if first := d.next(d.last, now); !first.After(oldest) {
			past = first
		}
		d.last = oldest
	}
	// A tick that has yet to come takes the place of none that has come.
	for t := d.next(d.last, now); !t.IsZero() && (!t.After(now) || len(ticks) == 0 && !t.After(now.Add(early))); t = d.next(t, now) {
		if len(ticks) == max(1, d.job.cfg.CatchUp) {
			ticks = ticks[1:]
			passed++
		}
		ticks = append(ticks, t)
		d.last = t
	}
	if len(ticks) > 0 {
		d.end()
		d.turn, d.end = context.WithCancel(context.Background())
		d.first = ticks[0]
	}
	return ticks, passed, past
}

// turnOf returns the turn of a tick, which is over if Take has returned later ones since.
func (d *due) turnOf(tick time.Time) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tick.Before(d.first) {
		return overTurn
	}
	return d.turn
}

// Near is part of cronhook.Due.
func (d *due) Near(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.next(now.Add(-d.job.cfg.Late).Round(0), now)
	return !t.IsZero() && !t.After(now.Add(early))
}

// nextTick is when the first tick that Take has not seen comes due, or came due; the zero
// time for never.
func (d *due) nextTick(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next(d.last, now)
}

// next is the tick after t, in the zone of now; zero also for a schedule that
// does not advance. The caller holds mu.
func (d *due) next(t, now time.Time) time.Time {
	if next := d.schedule.Next(t.In(now.Location())); next.After(t) {
		return next
	}
	return time.Time{}
}

// TickAll is part of cronhook.Due.
func (d *due) TickAll(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) (failed error) {
	j := d.job
	if len(ticks) > 1 && j.cfg.Overlap != OverlapAllow { // several were missed, and are made up for
		patient := *j
		patient.cfg.Overlap, patient.turnOf = OverlapLast, nil
		j = &patient
	}
	for _, tick := range ticks {
		if ctx.Err() != nil {
			return errors.Join(failed, context.Cause(ctx))
		}
		if err := j.Tick(ctx, tick, fn); !errors.Is(err, ErrSkipped) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
