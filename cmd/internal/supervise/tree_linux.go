package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process adopt every descendant whose parent ends, unless a nearer
// ancestor adopts it. So no process leaves the subtree of a watchdog.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the kernel kill the command when its watchdog dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// nameProcess sets the name that ps and killall use. The main thread must call it, since the kernel
// stores a name per thread.
func nameProcess(name string) {
	text := append([]byte(name), 0)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0) //nolint:gosec // the kernel reads a string
}

// bootTime reads a clock that is the same in all processes, cannot be set, and continues while the
// machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}

// dup2 duplicates from as to.
func dup2(from, to int) { _ = unix.Dup3(from, to, 0) }

// next waits for a change of a child and reaps the child if it has ended. It returns 0 for an
// unknown child. It holds mu while it reaps, since a list of children that is read at the same time
// may be incomplete.
func (r *reaper) next(status *unix.WaitStatus) (int, error) {
	const changes = unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED
	if err := unix.Waitid(unix.P_ALL, 0, nil, changes|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.collect(status)
}

// roots counts the children of the command that have not ended.
func (t *tree) roots() (n int) {
	for _, pid := range ownChildren() {
		if !t.foreign[pid] && !dead(pid) {
			n++
		}
	}
	return n
}

// signalRest signals the processes outside the group of the command. It finds all of them before it
// signals the first, for two reasons: when a signalled process ends, its children move to another
// parent and a walk could miss them, and processes that it starts to clean up must not be
// signalled.
func (t *tree) signalRest(sig unix.Signal) {
	grouped := children.signalGroup(t.group, 0) == nil
	found := make(map[int]process)
	for range 2 { // the second walk finds processes whose parent ended during the first
		t.walk(func(p process) bool {
			group, err := unix.Getpgid(p.pid)
			if _, ok := found[p.pid]; ok || err != nil || grouped && group == t.group || t.spared(p.pid) {
				return false
			}
			found[p.pid] = p
			return true
		})
	}
	for _, p := range found {
		if errors.Is(p.signal(sig), unix.EPERM) {
			t.denied++
		}
		p.close()
	}
}

// kill kills all processes, except keepers that are spared. It stops after the time limit, or when two
// walks in a row have found nothing to kill. One walk is not enough, since a process may fork during it.
func (t *tree) kill(limit time.Duration) {
	_ = children.signalGroup(t.group, unix.SIGKILL) // the kernel kills a group in one step
	for quiet, end := 0, bootTime()+limit; quiet < 2 && bootTime() < end; {
		t.killChildren()
		denied, spared := 0, 0
		live := t.walk(func(p process) bool {
			if t.spared(p.pid) {
				spared++
			} else if errors.Is(p.signal(unix.SIGKILL), unix.EPERM) {
				denied++
			}
			return false
		})
		t.denied = denied
		if live > denied+spared {
			quiet = 0
			continue
		}
		quiet++
		time.Sleep(200 * time.Microsecond)
	}
}

// killChildren kills our own children as fast as they can be listed. It stops chains of processes
// that fork and exit: each of them is our child only for a moment, and a walk would be too slow. No
// child is reaped meanwhile, so the kernel cannot reuse their numbers.
func (t *tree) killChildren() {
	list, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the walk finds them
	}
	defer unix.Close(list)
	children.mu.Lock()
	defer children.mu.Unlock()
	const rounds = 200
	killed, text := make(map[int]bool), make([]byte, 1<<16)
	for i, before := 0, -1; i < rounds && len(killed) > before; i++ {
		before = len(killed)
		n, _ := unix.Pread(list, text, 0)
		for _, pid := range numbers(text[:max(n, 0)]) {
			if !killed[pid] && !t.foreign[pid] && !t.spared(pid) {
				unix.Kill(pid, unix.SIGKILL)
				killed[pid] = true
			}
		}
	}
}

// process is a process with an open pidfd, which refers to that process even if its number is
// reused. fd is -1 if there is no pidfd.
type process struct{ pid, fd int }

// signal sends a signal, by process number if there is no pidfd.
func (p process) signal(sig unix.Signal) error {
	if p.fd < 0 {
		return unix.Kill(p.pid, sig)
	}
	return unix.PidfdSendSignal(p.fd, sig, nil, 0)
}

// close closes the pidfd.
func (p process) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// walk calls f for each running process of the tree, from the top down, and returns how many there
// are. f reports whether it keeps the process and closes it later. After walk has opened a process,
// it checks its parent. If the parent has changed, walk counts the process without calling f, and
// the next walk finds it in its new place.
func (t *tree) walk(f func(process) (keeps bool)) (n int) {
	self := os.Getpid()
	for todo := []int{self}; len(todo) > 0; todo = todo[1:] {
		below := ownChildren
		if todo[0] != self {
			below = func() []int { return childrenOf(todo[0]) }
		}
		for _, pid := range below() {
			if todo[0] == self && t.foreign[pid] {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			p := process{pid, fd}
			if err != nil {
				p.fd = -1
			}
			state, parent := statOf(pid)
			keeps := false
			switch {
			case parent != todo[0] && state != hidden:
				n++
			case !dead(pid):
				n++
				keeps = f(p)
				todo = append(todo, pid)
			}
			if !keeps {
				p.close()
			}
		}
	}
	return n
}

// ownChildren returns our children. None is reaped while they are listed.
func ownChildren() []int {
	children.mu.Lock()
	defer children.mu.Unlock()
	return childrenOf(os.Getpid())
}

// childrenOf returns the children of a process. The kernel lists them by the thread that created
// them. If the kernel has no such lists, all processes are searched.
func childrenOf(parent int) []int {
	dir := fmt.Sprintf("/proc/%d/task", parent)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var pids []int
	for _, thread := range threads {
		list, err := os.ReadFile(dir + "/" + thread.Name() + "/children")
		if err != nil && thread.Name() == strconv.Itoa(parent) && running(parent) {
			return childrenByParent(parent)
		}
		pids = append(pids, numbers(list)...)
	}
	return pids
}

// numbers parses a list of processes.
func numbers(list []byte) (pids []int) {
	for _, field := range bytes.Fields(list) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func childrenByParent(parent int) (pids []int) {
	entries, _ := os.ReadDir("/proc") // without /proc the result is empty
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && parentOf(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	_, parent := statOf(pid)
	return parent
}

// running reports whether a process has not ended.
func running(pid int) bool {
	state, _ := statOf(pid)
	return state != 'Z' && state != 'X'
}

// dead reports whether every thread of a process has ended. A process whose first thread has ended is
// shown as a zombie, while others may still write.
func dead(pid int) bool {
	state, _ := statOf(pid)
	return state == 'X' || state == 'Z' && finished(pid)
}

// finished reports whether a process is a zombie and every thread of it has ended, so that it has no
// children any more. A pidfd says so, unless a debugger keeps threads that have ended. Then they are
// looked up several times, since the kernel may leave a thread out of a list while others end.
func finished(pid int) bool {
	if state, _ := statOf(pid); state != 'Z' {
		return false
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(fd)
		if hasEnded(fd, 0) {
			return true
		}
	}
	const looks = 10
	for range looks {
		if !threadsEnded(pid) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// threadsEnded reports whether every listed thread of a process has ended.
func threadsEnded(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		if state, _ := readStat(thread); state != 'Z' && state != 'X' {
			return false
		}
	}
	return true
}

// hidden is the state of a process whose /proc entry cannot be read, since it belongs to another
// user and /proc is mounted with hidepid. Such a process cannot be signalled.
const hidden = '?'

// statOf returns the state and the parent of a process, or 'X' and 0 if it does not exist.
func statOf(pid int) (state byte, parent int) {
	state, parent = readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if state == 'X' && errors.Is(unix.Kill(pid, 0), unix.EPERM) {
		return hidden, 0
	}
	return state, parent
}

// readStat is statOf for a file such as /proc/PID/stat: pid (name) state parent. The name may
// contain anything, so it ends at the last parenthesis.
func readStat(path string) (state byte, parent int) {
	stat, err := os.ReadFile(path)
	end := bytes.LastIndexByte(stat, ')')
	if err != nil || end < 0 {
		return 'X', 0
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 || fields[0][0] == 'X' {
		return 'X', 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}
