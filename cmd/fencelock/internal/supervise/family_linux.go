package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes us the parent of every descendant whose own parent ends, so
// that none is out of sight.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the kernel kill the command as soon as we die; it covers the
// moment before the watchdog knows the group.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// childrenOf returns the children of a process. The kernel lists them by the thread
// that made them; a kernel without those lists is asked for all processes.
func childrenOf(parent int) []int {
	dir := fmt.Sprintf("/proc/%d/task", parent)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var children []int
	for _, thread := range threads {
		list, err := os.ReadFile(dir + "/" + thread.Name() + "/children")
		if err != nil && thread.Name() == strconv.Itoa(parent) {
			return childrenByParent(parent)
		}
		for _, field := range bytes.Fields(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

func childrenByParent(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var children []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && parentOf(pid) == parent {
			children = append(children, pid)
		}
	}
	return children
}

// parentOf returns the parent of a process, or 0. It reads /proc/PID/stat: pid (name)
// state parent. A name may hold anything, so it ends at the last parenthesis.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(stat, ')')
	if err != nil || end < 0 {
		return 0
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 || fields[0][0] == 'X' {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// wait4 waits for a child and collects it with mu held. A list of children that is
// read while one of them is collected may lack another.
func wait4(mu *sync.Mutex, status *unix.WaitStatus) (int, error) {
	for {
		const changes = unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED
		if err := unix.Waitid(unix.P_ALL, 0, nil, changes|unix.WNOWAIT, nil); err != nil {
			return 0, err
		}
		mu.Lock()
		pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED|unix.WNOHANG, nil)
		mu.Unlock()
		if pid != 0 || err != nil {
			return pid, err
		}
	}
}
