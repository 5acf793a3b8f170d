package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose own parent ends, unless
// that has a nearer ancestor that does the same. So nothing leaves the subtree of a watchdog.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the kernel kill the command as soon as its watchdog dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// nameProcess sets the name that killall and ps look at. It is that of the main
// thread, which must call it.
func nameProcess(name string) {
	text := append([]byte(name), 0)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0) //nolint:gosec // the kernel reads a string
}

// bootTime reads a clock that is the same in every process of this machine, that
// nobody sets, and that goes on while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}

// dup2 makes to another number of the open file from.
func dup2(from, to int) { _ = unix.Dup3(from, to, 0) }

// next waits for a change of a child, and collects it if it has ended. It returns 0 for a
// child that is not known. A list of children that is read while one is collected may lack
// another, so that happens with mu held.
func (r *reaper) next(status *unix.WaitStatus) (int, error) {
	const changes = unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED
	if err := unix.Waitid(unix.P_ALL, 0, nil, changes|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.collect(status)
}

// roots counts the children that are the command's and have not ended.
func (t *tree) roots() (n int) {
	for _, pid := range ownChildren() {
		if !t.spare[pid] && running(pid) {
			n++
		}
	}
	return n
}

// signalRest signals everything outside of the command's group. All processes are found before
// one is signalled: a parent that ends early would hide its children, and what a process starts
// to clean up must not be signalled too.
func (t *tree) signalRest(sig unix.Signal) {
	grouped := children.signalGroup(t.group, 0) == nil
	found := make(map[int]process)
	for range 2 { // a process whose parent ends meanwhile is found by the second walk
		t.walk(func(p process) bool {
			group, err := unix.Getpgid(p.pid)
			if _, ok := found[p.pid]; ok || err != nil || grouped && group == t.group {
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

// kill kills everything, until two looks in a row have found nothing that could be killed, or
// the time is over: a process may be born while its parent dies.
func (t *tree) kill(limit time.Duration) {
	_ = children.signalGroup(t.group, unix.SIGKILL) // the kernel kills a group in one step
	for quiet, end := 0, bootTime()+limit; quiet < 2 && bootTime() < end; {
		t.killChildren()
		denied := 0
		live := t.walk(func(p process) bool {
			if errors.Is(p.signal(unix.SIGKILL), unix.EPERM) {
				denied++
			}
			return false
		})
		t.denied = denied
		if live > denied {
			quiet = 0
			continue
		}
		quiet++
		time.Sleep(200 * time.Microsecond)
	}
}

// killChildren kills our own children as fast as they can be listed. A chain of processes that
// fork and end all the time is always here for a moment, and gone before a walk reaches it. No
// child is collected meanwhile, so a number is still its process's.
func (t *tree) killChildren() {
	list, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the walk finds them
	}
	defer unix.Close(list)
	children.mu.Lock()
	defer children.mu.Unlock()
	const most = 200 // looks
	killed, text := make(map[int]bool), make([]byte, 1<<16)
	for i, before := 0, -1; i < most && len(killed) > before; i++ {
		before = len(killed)
		n, _ := unix.Pread(list, text, 0)
		for _, pid := range numbers(text[:max(n, 0)]) {
			if !killed[pid] && !t.spare[pid] {
				unix.Kill(pid, unix.SIGKILL)
				killed[pid] = true
			}
		}
	}
}

// process is one that is held, so that its number cannot become another one's meanwhile.
type process struct{ pid, fd int }

// signal sends a signal. Where the kernel has no pidfd, or refuses one, it goes by number.
func (p process) signal(sig unix.Signal) error {
	if p.fd < 0 {
		return unix.Kill(p.pid, sig)
	}
	return unix.PidfdSendSignal(p.fd, sig, nil, 0)
}

// close lets go of the process.
func (p process) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// walk calls f for every live process of the tree from the top down, and counts them. f returns
// whether it keeps the process, and closes it later. The parent is read again once the process
// is held. One that has got another parent, or has ended, counts too: the next walk finds what
// has become of it.
func (t *tree) walk(f func(process) (keeps bool)) (n int) {
	self := os.Getpid()
	for todo := []int{self}; len(todo) > 0; todo = todo[1:] {
		below := ownChildren
		if todo[0] != self {
			below = func() []int { return childrenOf(todo[0]) }
		}
		for _, pid := range below() {
			if todo[0] == self && t.spare[pid] {
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
			case state != 'Z' && state != 'X':
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

// ownChildren returns our children. None is collected meanwhile.
func ownChildren() []int {
	children.mu.Lock()
	defer children.mu.Unlock()
	return childrenOf(os.Getpid())
}

// childrenOf returns the children of a process. The kernel lists them by the thread
// that made them; a kernel without those lists is asked for all processes.
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

// numbers reads a list of processes.
func numbers(list []byte) (pids []int) {
	for _, field := range bytes.Fields(list) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func childrenByParent(parent int) (pids []int) {
	entries, _ := os.ReadDir("/proc") // without it there is nothing to see
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

// hidden is the state of a process whose /proc entry cannot be read: it belongs to another user,
// and /proc was mounted with hidepid. No signal reaches it.
const hidden = '?'

// statOf returns the state and the parent of a process; 'X' and 0 if there is none. It reads
// /proc/PID/stat: pid (name) state parent. A name may hold anything, so it ends at the last
// parenthesis.
func statOf(pid int) (state byte, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil && errors.Is(unix.Kill(pid, 0), unix.EPERM) {
		return hidden, 0
	}
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
