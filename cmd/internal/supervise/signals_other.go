//go:build unix && !linux

package supervise

import "os"

// more are signals of this system that Forwarded passes on.
var more []os.Signal
