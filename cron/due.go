package cron

import (
	"context"
	"errors"
	"sync"
	"time"
)

// due implements cronhook.Due.
type due struct {
	job      *Job // a copy that knows its schedule
	schedule Schedule

	mu    sync.Mutex         // guards the fields below, and calls of schedule
	last  time.Time          // ticks up to this one are not returned again
	turn  context.Context    // ends when Take returns newer ticks
	end   context.CancelFunc // cancels turn
	first time.Time          // the oldest tick that Take returned last; zero before
}

// newDue returns a due that starts now, or, with Config.CatchUp, Config.Late ago.
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

// Take implements cronhook.Due.
func (d *due) Take(now time.Time) []time.Time {
	ticks, passed, past := d.take(now)
	if passed > 0 {
		d.job.cfg.Logger.Info("older ticks dropped", "job", d.job.name, "ticks", passed, "until", ticks[0])
	}
	if !past.IsZero() {
		past = past.UTC()
		d.job.report(context.Background(), Run{Tick: past}, d.job.skipped(past, ReasonTooLate, nil))
	}
	return ticks
}

// take is Take. It also returns the number of ticks that it dropped, and the first tick that is
// older than Config.Late, or the zero time.
func (d *due) take(now time.Time) (ticks []time.Time, passed int, past time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.After(now.Add(early + d.job.cfg.Skew)) {
		d.last = now.Round(0) // the clock was ahead and was set back: those ticks are still to come
	}
	if oldest := now.Add(-d.job.cfg.Late).Round(0); d.last.Before(oldest) {
		if first := d.next(d.last, now); !first.After(oldest) {
			past = first
		}
		d.last = oldest
	}
	// A tick that is due within early must not displace one that is already due.
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

// turnOf returns the context in which a tick may wait. It has ended if Take has returned newer
// ticks.
func (d *due) turnOf(tick time.Time) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tick.Before(d.first) {
		return overTurn
	}
	return d.turn
}

// Near implements cronhook.Due.
func (d *due) Near(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.next(now.Add(-d.job.cfg.Late).Round(0), now)
	return !t.IsZero() && !t.After(now.Add(early))
}

// nextTick returns the first tick that Take has not returned, or the zero time if there is none.
func (d *due) nextTick(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next(d.last, now)
}

// next returns the tick after t, in the zone of now. It returns the zero time if there is none or
// the schedule does not advance. The caller holds mu.
func (d *due) next(t, now time.Time) time.Time {
	if next := d.schedule.Next(t.In(now.Location())); next.After(t) {
		return next
	}
	return time.Time{}
}

// TickAll implements cronhook.Due.
func (d *due) TickAll(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) (failed error) {
	j := d.job
	if len(ticks) > 1 && j.cfg.Overlap != OverlapAllow { // catch up: run the missed ticks one after the other
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
