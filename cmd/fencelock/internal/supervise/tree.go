//go:build unix

package supervise

import (
	"errors"

	"golang.org/x/sys/unix"
)

// tree is what descends from this process and is the command's. It belongs to one goroutine.
type tree struct {
	group  int          // that the command leads; 0 before it was started
	spare  map[int]bool // children of ours that are not the command's
	denied int          // processes that refused the last signal: they belong to another user
}

// signal sends a signal to the group of the command, as a terminal does, or to everything when
// all is set or the command itself has ended.
func (t *tree) signal(sig unix.Signal, all bool) {
	t.denied = 0
	if all || errors.Is(children.signalGroup(t.group, 0), unix.ESRCH) {
		t.signalRest(sig)
	}
	if errors.Is(children.signalGroup(t.group, sig), unix.EPERM) {
		t.denied++
	}
}
