//go:build unix

// Package freeze stops processes as SIGSTOP does.
package freeze

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Process stops a process with SIGSTOP. It returns when the process has stopped, if the system
// reports that.
func Process(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	for range 200 {
		if stopped(p) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// stopped reports whether every thread of the process has stopped. Without /proc it always returns
// false.
func stopped(p *os.Process) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
	for _, stat := range threads {
		b, err := os.ReadFile(stat)
		i := bytes.LastIndexByte(b, ')')
		if err != nil || i < 0 || len(b) <= i+2 || b[i+2] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}
