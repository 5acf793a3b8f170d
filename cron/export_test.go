package cron

import (
	"time"
)

// NextOf is when d comes due next, for tests.
func NextOf(d *Due, now time.Time) time.Time { return d.nextTick(now) }
