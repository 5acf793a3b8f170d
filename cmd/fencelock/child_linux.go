package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes us the parent of every descendant whose own parent ends, so
// that none is out of sight.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the kernel kill the command as soon as we die; it covers the
// moment before the keeper knows the group.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// process is a line of the table of processes.
type process struct{ pid, parent, group int }

// descendants returns the live processes below root, parents first.
func descendants(root int) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	byParent := make(map[int][]process)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			byParent[p.parent] = append(byParent[p.parent], p)
		}
	}
	below := slices.Clone(byParent[root])
	for i := 0; i < len(below); i++ {
		below = append(below, byParent[below[i].pid]...)
	}
	return below
}

// readProcess reads /proc/PID/stat: pid (name) state parent group. A name may
// hold anything, so it ends at the last parenthesis.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(stat, ')')
	if err != nil || end < 0 {
		return process{}, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 3 || fields[0][0] == 'X' {
		return process{}, false
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	return process{pid, parent, group}, true
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	p, _ := readProcess(pid)
	return p.parent
}
