package cron

import (
	"sync"
	"time"
)

// Schedule says when a job is due. The schedules of robfig/cron are Schedules. Ticks are instants:
// such a schedule in local time has the times of one hour twice on the day on which clocks are set
// back, and on the day on which they are set forward those of one hour not at all.
type Schedule interface {
	// Next returns the first tick after t, in the zone of t, and the zero time if
	// there is none.
	Next(t time.Time) time.Time
}

// Every is the schedule whose ticks are the multiples of d since the zero time:
// the same on every host. It panics if d is not positive.
func Every(d time.Duration) Schedule {
	if d <= 0 {
		panic("cron: Every needs a positive duration")
	}
	return every(d)
}

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// Once is the schedule with the one tick t.
func Once(t time.Time) Schedule { return once(t.Round(0)) }

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if tick := time.Time(o); tick.After(t) {
		return tick.In(t.Location())
	}
	return time.Time{}
}

// Due finds for which ticks of its schedule a scheduler woke up. It is safe for
// concurrent use.
type Due struct {
	job      Job
	schedule Schedule

	mu    sync.Mutex // guards last, turn, first and calls of schedule
	last  time.Time  // no tick up to this one is due again
	turn  *turn      // of the ticks that Take returned last; nil before
	first time.Time  // the oldest of them
}

// Due returns a Due of the job that begins now, or with Config.CatchUp as far back as
// Config.Late.
func (j Job) Due(s Schedule) (*Due, error) {
	full, err := j.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Due{job: full, schedule: s, last: time.Now().Round(0)}
	if j.CatchUp > 0 {
		d.last = d.last.Add(-full.Late)
	}
	return d, nil
}

// Job returns the job of d, which writes into its record when the tick after the one that
// it takes comes due. It is for schedulers that take ticks from d, and ticks must come in
// the zone in which Take returned them.
func (d *Due) Job() Job {
	j := d.job
	j.turnOf = d.turnOf
	j.after = func(tick time.Time) time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.next(tick, tick)
	}
	return j
}

// Take returns the ticks that came due by now since the last call, oldest first.
// Of several it returns the newest one, or the newest so many as Config.CatchUp
// allows. Ticks that came due longer than Config.Late ago are past: the first of
// them is reported to Config.OnTick.
func (d *Due) Take(now time.Time) []time.Time {
	due, passed, past := d.take(now)
	if passed > 0 {
		d.job.Logger.Info("ticks passed over", "job", d.job.name, "ticks", passed, "until", due[0])
	}
	if !past.IsZero() {
		past = past.UTC()
		d.job.report(Outcome{Job: d.job.name, Scheduled: past, Err: d.job.skipped(past, TooLate, nil)})
	}
	return due
}

// take is Take, and also returns how many ticks were passed over, and the first tick that is
// past, or the zero time.
func (d *Due) take(now time.Time) (due []time.Time, passed int, past time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.After(now.Add(early + d.job.Skew)) {
		d.last = now.Round(0) // the clock was ahead; what it saw is yet to come
	}
	if oldest := now.Add(-d.job.Late).Round(0); d.last.Before(oldest) {
		if first := d.next(d.last, now); !first.After(oldest) {
			past = first
		}
		d.last = oldest
	}
	// A tick that has yet to come takes the place of none that has come.
	for t := d.next(d.last, now); !t.IsZero() && (!t.After(now) || len(due) == 0 && !t.After(now.Add(early))); t = d.next(t, now) {
		if len(due) == max(1, d.job.CatchUp) {
			due = due[1:]
			passed++
		}
		due = append(due, t)
		d.last = t
	}
	if len(due) > 0 {
		d.turn, d.first = d.turn.next(), due[0]
	}
	return due, passed, past
}

// turnOf returns the turn of a tick, which is over if Take has returned later ones since; nil
// before Take has returned any.
func (d *Due) turnOf(tick time.Time) *turn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turn != nil && tick.Before(d.first) {
		return overTurn
	}
	return d.turn
}

// Near reports whether a tick of the schedule is due now or came due within Config.Late,
// taken or not. A scheduler that wakes up when none is near has another schedule.
func (d *Due) Near(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.next(now.Add(-d.job.Late).Round(0), now)
	return !t.IsZero() && !t.After(now.Add(early))
}

// Next returns when the first tick that Take has not seen comes due, or came due; the
// zero time for never.
func (d *Due) Next(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next(d.last, now)
}

// next is the tick after t, in the zone of now; zero also for a schedule that
// does not advance. The caller holds mu.
func (d *Due) next(t, now time.Time) time.Time {
	if next := d.schedule.Next(t.In(now.Location())); next.After(t) {
		return next
	}
	return time.Time{}
}
