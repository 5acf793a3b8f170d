//go:build !linux

package clock

import "time"

// suspended returns 0: the wall clock, which keeps going in suspend, stands in.
func suspended() time.Duration { return 0 }
