package cron

import "time"

// Schedule says when a job is due. The schedules of robfig/cron implement it. Ticks are instants,
// so a schedule in local time has the times of one hour twice on the day on which clocks are set
// back, and lacks those of one hour on the day on which they are set forward.
type Schedule interface {
	// Next returns the first tick after t, in the zone of t, or the zero time if there is none.
	Next(t time.Time) time.Time
}

// Every returns the schedule whose ticks are the multiples of d since the zero time. They are the
// same on every host. It panics if d is not positive.
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
