//go:build !linux

package clock

import "time"

// suspended returns 0: the wall clock, which advances during a suspend, is used instead.
func suspended() time.Duration { return 0 }
