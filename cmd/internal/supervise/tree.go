//go:build unix

package supervise

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tree is the descendants of this process that belong to the command. It is not safe for concurrent
// use.
type tree struct {
	group         int          // process group of the command; 0 before the start
	foreign       map[int]bool // our children that do not belong to the command
	denied        int          // how many processes of other users the last signal did not reach
	sparesKeepers bool         // keepers are not signalled with the other processes; see endKeepers
}

// signal signals the group of the command, as a terminal does. If all is set, or the command itself
// has ended, it signals every process.
func (t *tree) signal(sig unix.Signal, all bool) {
	t.denied = 0
	if all || errors.Is(children.signalGroup(t.group, 0), unix.ESRCH) {
		t.signalRest(sig)
	}
	if errors.Is(children.signalGroup(t.group, sig), unix.EPERM) {
		t.denied++
	}
}
