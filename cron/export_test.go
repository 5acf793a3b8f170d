package cron

import (
	"time"

	"github.com/fencelock/fencelock/internal/cronhook"
)

// NextOf is when d comes due next, for tests.
func NextOf(d cronhook.Due, now time.Time) time.Time { return d.(*due).nextTick(now) }
