//go:build unix

package pgtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A running process of the system, with the first letter of its state: T stands
// still, Z has ended and waits for its parent.
type running struct {
	pid, parent int
	state       byte
}

// processes lists what runs. It reads /proc where there is one, because ps takes
// long enough to blur what a test wants to happen at one moment.
func processes() []running {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is fine
	if len(stats) == 0 {
		return listed()
	}
	var all []running
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		// The name of the program, in parentheses, may contain anything.
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if err != nil || len(fields) < 2 {
			continue // it has just ended
		}
		all = appendProcess(all, filepath.Base(filepath.Dir(stat)), string(fields[1]), string(fields[0]))
	}
	return all
}

// listed asks ps.
func listed() []running {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output() // nothing listed is seen by the caller
	var all []running
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			all = appendProcess(all, f[0], f[1], f[2])
		}
	}
	return all
}

func appendProcess(all []running, pid, parent, state string) []running {
	p, errPID := strconv.Atoi(pid)
	q, errParent := strconv.Atoi(parent)
	if errPID != nil || errParent != nil {
		return all
	}
	return append(all, running{p, q, state[0]})
}
