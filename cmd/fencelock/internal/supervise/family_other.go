//go:build unix && !linux

package supervise

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans does nothing: only Linux hands orphans to anyone but init. There,
// the lock is kept while the process group is alive.
func adoptOrphans() {}

// dieWithParent does nothing: the watchdog alone ends the command.
func dieWithParent(*syscall.SysProcAttr) {}

// childrenOf returns nothing: they are not known here.
func childrenOf(int) []int { return nil }

// parentOf returns 0: it is not known here.
func parentOf(int) int { return 0 }

// wait4 waits for a child and collects it.
func wait4(_ *sync.Mutex, status *unix.WaitStatus) (int, error) {
	return unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED, nil)
}
