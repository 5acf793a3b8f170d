package supervise

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keeperName is the name in the process table of a process that holds a lock for others.
const keeperName = "lock-keeper"

// NameKeeper marks this process as a keeper: it does no work, and must outlive the work for which it
// holds its lock. A watchdog ends the keepers among the processes of its command last.
func NameKeeper() {
	_ = os.WriteFile("/proc/self/comm", []byte(keeperName), 0) // without it, it ends with the other processes
}

// isKeeper reports whether a process is a keeper. Other programs may have its name, but not its
// file.
func isKeeper(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || string(name) != keeperName+"\n" {
		return false
	}
	return isOurs(pid)
}

// spared reports whether a process is a keeper that is not signalled with the others.
func (t *tree) spared(pid int) bool { return t.sparesKeepers && isKeeper(pid) }

// endKeepers asks the keepers to end if no other process is left, so that their locks are released
// and do not stay until their leases expire. It returns how many keepers there are, and whether it
// has asked them. A keeper may be asked several times.
func (t *tree) endKeepers() (n int, asked bool) {
	var keepers []process
	live := t.walk(func(p process) bool {
		if !isKeeper(p.pid) {
			return false
		}
		keepers = append(keepers, p)
		return true
	})
	asked = len(keepers) > 0 && live == len(keepers)
	for _, p := range keepers {
		if asked {
			_ = p.signal(unix.SIGTERM) // it may have ended
			_ = p.signal(unix.SIGCONT)
		}
		p.close()
	}
	return len(keepers), asked
}
