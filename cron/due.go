package cron

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ClockCheck is how often a scheduler reads the wall clock while it waits for a tick. Its timer runs
// on the monotonic clock, which stops while the host is suspended and does not follow a clock that
// is set. It is half of the default of Config.Late, so that a tick shortly after that is not too late.
const ClockCheck = 30 * time.Second

// Due finds the ticks for which a scheduler woke up, and runs them. Adapters of schedulers use it;
// other programs call [Job.Run] or [Job.Tick]. It is safe for concurrent use.
type Due struct {
	job      *Job // a copy that knows its schedule
	schedule Schedule

	mu     sync.Mutex         // guards the fields below, and calls of schedule
	last   time.Time          // ticks up to this one are not returned again
	newest context.Context    // ends when Take returns newer ticks
	end    context.CancelFunc // cancels newest
	first  time.Time          // the oldest tick that Take returned last; zero before
}

// Due returns the ticks of a schedule from now on, or, with Config.CatchUp, from Config.Late ago. It
// returns the error of the job's configuration, which is a fencelock.ErrInvalid.
func (j *Job) Due(s Schedule) (*Due, error) {
	if j.invalid != nil {
		return nil, j.invalid
	}
	own := *j
	d := &Due{job: &own, schedule: s, last: time.Now().Round(0)}
	d.newest, d.end = context.WithCancel(context.Background())
	if j.cfg.CatchUp > 0 {
		d.last = d.last.Add(-j.cfg.Late)
	}
	own.waitContextOf = d.waitContext
	own.after = func(tick time.Time) time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.next(tick, tick)
	}
	return d, nil
}

// Take returns the ticks that came due since the last call, up to now, oldest first, in the zone of
// now. It returns only the newest one, or the newest Config.CatchUp ones if that is more. Ticks older
// than Config.Late are dropped; the first of them is reported to Config.OnTick.
func (d *Due) Take(now time.Time) []time.Time {
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
func (d *Due) take(now time.Time) (ticks []time.Time, passed int, past time.Time) {
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
		d.newest, d.end = context.WithCancel(context.Background())
		d.first = ticks[0]
	}
	return ticks, passed, past
}

// waitContext returns the context in which a tick may wait. It has ended if Take has returned newer
// ticks.
func (d *Due) waitContext(tick time.Time) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tick.Before(d.first) {
		return overTurn
	}
	return d.newest
}

// Near reports whether a tick of the schedule is due now or came due within Config.Late, whether
// taken or not. If none is near, the scheduler uses another schedule.
func (d *Due) Near(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.next(now.Add(-d.job.cfg.Late).Round(0), now)
	return !t.IsZero() && !t.After(now.Add(early))
}

// nextTick returns the first tick that Take has not returned, or the zero time if there is none.
func (d *Due) nextTick(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next(d.last, now)
}

// next returns the tick after t, in the zone of now. It returns the zero time if there is none or
// the schedule does not advance. The caller holds mu.
func (d *Due) next(t, now time.Time) time.Time {
	if next := d.schedule.Next(t.In(now.Location())); next.After(t) {
		return next
	}
	return time.Time{}
}

// TickAll calls Job.Tick for ticks that Take has returned together, one after the other, until ctx
// ends. If there are several, each waits for the run before it, here or on another instance, at most
// for Config.Late, even with OverlapSkip. It returns the errors of all ticks except of skipped ones,
// and the cause of ctx's end if it did not reach all of them.
func (d *Due) TickAll(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) (failed error) {
	j := d.job
	if len(ticks) > 1 && j.cfg.Overlap != OverlapAllow { // catch up: run the missed ticks one after the other
		patient := *j
		patient.cfg.Overlap, patient.waitContextOf = OverlapLast, nil
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

// Start is the first half of [Job.Tick], for a tick that Take has returned. finish ends the run; err
// is the error of its work, or nil. finish writes the outcome into the job's record, releases the
// lock, and reports the outcome. It returns err, joined with the *LostError if the lock was lost. If
// the engine is unreachable, it returns after at most 10 s. Further calls of finish do nothing and
// return err.
func (d *Due) Start(ctx context.Context, tick time.Time) (finish func(err error) error, err error) {
	r, err := d.job.begin(ctx, tick.Round(0), (*Job).start)
	if err != nil {
		return nil, err
	}
	return r.finish, nil
}

// Report tells Config.OnTick and Config.Logger why the scheduler's call at now ran no tick.
func (d *Due) Report(now time.Time, why error) {
	d.job.report(context.Background(), Run{Tick: now.UTC()}, why)
}

// CatchUp returns Config.CatchUp.
func (d *Due) CatchUp() int { return d.job.cfg.CatchUp }

// RunsOverlap reports whether Config.Overlap is OverlapAllow.
func (d *Due) RunsOverlap() bool { return d.job.cfg.Overlap == OverlapAllow }
