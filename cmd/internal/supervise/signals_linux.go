package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// more are signals of this system that Forwarded passes on: that of a power supply, and the real-time
// signals that a Go program can receive. Some containers are stopped with SIGRTMIN+3.
var more = func() []os.Signal {
	all := []os.Signal{unix.SIGPWR}
	const first, last = 35, 64
	for n := first; n <= last; n++ {
		all = append(all, unix.Signal(n))
	}
	return all
}()
