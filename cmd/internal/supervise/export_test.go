//go:build unix

package supervise

import (
	"fmt"
	"os"
	"time"
)

// Inheritable exports inheritable to the tests.
var Inheritable = inheritable

// LateSends sends lines whose deadline has passed until the socket is full, and returns how many it
// has sent, and the error of the last one.
func LateSends() (n int, err error) {
	ours, theirs, err := newLink()
	if err != nil {
		return 0, err
	}
	defer theirs.Close()
	defer ours.Close()
	for ; err == nil; n++ {
		err = link{ours}.sendBy(time.Now().Add(-time.Second), order{Kill: true})
	}
	return n - 1, err
}

// SendToReader fills a socket, reads some of it, and returns the error of sending one more line.
func SendToReader() error {
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	defer theirs.Close()
	defer ours.Close()
	for err == nil {
		err = link{ours}.sendBy(time.Now().Add(-time.Second), order{Kill: true})
	}
	if _, err := theirs.Read(make([]byte, 1000)); err != nil {
		return err
	}
	return link{ours}.sendBy(time.Now().Add(-time.Second), order{Kill: true})
}

// StartErrorOf exports startError to the tests.
var StartErrorOf = startError

// Signalled reports whether signalGroup would signal a group.
func Signalled(group int) bool { return children.signalGroup(group, 0) == nil }

// Until returns the result of until, and the current time of the same clock.
func Until(deadline time.Time) (until0, now time.Duration) { return until(deadline), bootTime() }

// LateStart is a program that orders a watchdog to start its arguments after the deadline, as a
// wrapper does that was frozen. It prints the report that follows the first one of the watchdog.
func LateStart() {
	w, _, _, err := startWatchdog([3]*os.File{}, nil)
	if err != nil {
		panic(err)
	}
	w.order(order{Until: bootTime(), Start: &start{Path: []byte(os.Args[1]), Args: joined(os.Args[1:])}})
	reports := lines[report](w.conn, nil)
	if first := <-reports; !first.Ready {
		panic("the watchdog is not ready")
	}
	r, ok := <-reports
	fmt.Println(ok, r.Started)
}
