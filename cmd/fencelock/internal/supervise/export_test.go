//go:build unix

package supervise

import (
	"fmt"
	"os"
	"time"
)

// Inheritable is inheritable.
var Inheritable = inheritable

// StartErrorOf is startError.
var StartErrorOf = startError

// Signalled reports whether a group that no child of ours leads can be signalled.
func Signalled(group int) bool { return children.signalGroup(group, 0) == nil }

// Until is until, on a clock that it reads itself.
func Until(deadline time.Time) (until0, now time.Duration) { return until(deadline), bootTime() }

// LateStart is a program that orders a watchdog to start its arguments when the deadline is over,
// as a wrapper does that was frozen, and prints what it reports.
func LateStart() {
	w, _, _, err := startWatchdog([2]*os.File{}, nil)
	if err != nil {
		panic(err)
	}
	w.order(order{Until: bootTime(), Start: &start{Path: os.Args[1], Args: words(os.Args[1:])}})
	r, ok := <-lines[report](w.conn, nil)
	fmt.Println(ok, r.Started)
}
