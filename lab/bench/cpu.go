package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the CPU time that processes have used, by the kernel's clock of nanoseconds. One that
// has ended counts for nothing.
func cpuOf(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		var ts unix.Timespec
		// The clock that clock_getcpuclockid(3) would return.
		if unix.ClockGettime(int32(^pid<<3|2), &ts) == nil {
			sum += time.Duration(ts.Nano())
		}
	}
	return sum
}

// cpuTime is the CPU time that this process has used.
func cpuTime() time.Duration { return cpuOf([]int{os.Getpid()}) }

// family are the processes of a server: those it was started as, and their children.
func family(s server) []int {
	local, ok := s.(interface{ pids() []int })
	if !ok {
		return nil
	}
	roots := local.pids()
	all := slices.Clone(roots)
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is fine
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // from the state on: the parent is the second
		if len(fields) < 2 {
			continue
		}
		if parent, _ := strconv.Atoi(fields[1]); slices.Contains(roots, parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all = append(all, pid)
		}
	}
	return all
}
