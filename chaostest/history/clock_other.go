//go:build !darwin && !linux

package history

import "time"

// Now returns the time by the clock that all processes of this machine share: the wall clock. A
// history is not valid if that clock was set meanwhile.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
