package history

import "time"

// Now returns the time by the clock that all processes of this machine share. On Linux and macOS it is
// the monotonic clock, which is never set. Elsewhere it is the wall clock, and a history is not valid
// if that was set meanwhile.
func Now() time.Duration { return now() }
