package early

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// lowLimit is a limit on processes that is worth a look. A look takes some milliseconds.
const lowLimit = 1024

// freeTasks returns how many processes or threads this user may start, need at most. Only an attempt
// shows it: the kernel does not tell how many there are. It does not try if the limit is not low, or
// does not apply to this user.
func freeTasks(need int) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur > lowLimit || unix.Geteuid() == 0 {
		return need
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pids []int
	supervise.WithoutSignals(func() {
		for len(pids) < need {
			pid := forkIdle()
			if pid == 0 {
				break
			}
			pids = append(pids, pid)
		}
	})
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
		for {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				break
			}
		}
	}
	return len(pids)
}

// forkIdle forks a child that sleeps until it is killed, and returns its number, or 0 if there is none.
// The child has one thread and makes only system calls, since locks of the Go runtime may never be free
// there.
//
//go:norace
//go:nosplit
func forkIdle() int {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	if pid != 0 {
		return int(pid)
	}
	unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
