package filelock

import (
	"os"
	"time"
)

// A patience limits how long one call waits, or searches, in vain. Another user may have put as many
// names into the directory as he likes, each with a directory lock, a file lease or a foreign lock
// that he keeps. A nil patience has no limit. One goroutine uses it.
type patience struct{ left time.Duration }

// listPatience is how long List, and Watch at each look, wait in vain for all names together.
const listPatience = 5 * time.Second

// leaseLimit is how long to wait for a file lease. It is short, since a file server returns a lease in
// milliseconds, and any user who owns a file may keep one.
const leaseLimit = time.Second

// limit returns how long the call may wait for the next one, and at most longest.
func (p *patience) limit(longest time.Duration) time.Duration {
	if p == nil {
		return longest
	}
	return max(0, min(longest, p.left))
}

// spent subtracts the time since start.
func (p *patience) spent(start time.Time) {
	if p != nil {
		p.left -= time.Since(start)
	}
}

// flockOwners is the function of that name. It finds nobody when the patience is at its end, since it
// looks at the files of all processes.
func (p *patience) flockOwners(f *os.File) (pids []int) {
	if p.limit(1) == 0 {
		return nil
	}
	defer p.spent(time.Now())
	pids, _ = flockOwners(f)
	return pids
}
