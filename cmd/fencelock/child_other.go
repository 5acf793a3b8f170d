//go:build unix && !linux

package main

import "syscall"

// adoptOrphans does nothing: only Linux hands orphans to anyone but init. There,
// the lock is kept while the process group is alive.
func adoptOrphans() {}

// dieWithParent does nothing: the keeper alone ends the command.
func dieWithParent(*syscall.SysProcAttr) {}

// process is a line of the table of processes.
type process struct{ pid, parent, group int }

// descendants returns nothing: they are not known here.
func descendants(int) []process { return nil }

// parentOf returns 0: it is not known here.
func parentOf(int) int { return 0 }
