package cron

import "time"

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
