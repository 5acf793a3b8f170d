package filelock_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
)

// instances counts the inotify instances of a process.
func instances(t *testing.T, pid int) (n int) {
	t.Helper()
	fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if len(fds) == 0 {
		t.Fatalf("process %d cannot be looked at", pid)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

// wakeUps counts how often the threads of a process have gone to sleep.
func wakeUps(t *testing.T, pid int) (n int) {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				m, _ := strconv.Atoi(strings.TrimSpace(rest))
				n += m
			}
		}
	}
	return n
}

func TestWaitingCostsLittle(t *testing.T) {
	const waiters = 10
	dir := tempDir(t)
	l := hold(t, proc.Start(t, "poll", dir), "a")
	ps := make([]*proc.Process, waiters)
	for i := range ps {
		ps[i] = proc.Start(t, "files", dir)
		queueUp(t, t.Context(), ps[i], "a")
	}
	<-time.After(3 * time.Second) // until looks are as far apart as they get
	before := 0
	for _, p := range ps {
		before += wakeUps(t, p.PID())
	}
	const seconds = 3
	<-time.After(seconds * time.Second) // what is measured
	after := 0
	for _, p := range ps {
		after += wakeUps(t, p.PID())
		if n := instances(t, p.PID()); n != 0 {
			t.Errorf("a process that only waits has %d inotify instances", n)
		}
	}
	each := float64(after-before) / waiters / seconds
	t.Logf("%.1f times a second a thread of a waiting process went to sleep", each)
	if each > 60 {
		t.Errorf("a waiting process woke up %.1f times a second", each)
	}
	_ = l
}

func TestInotifyInstances(t *testing.T) {
	dir := tempDir(t)
	for kind, want := range map[string]int{"files": 1, "poll": 0} {
		p := proc.Start(t, kind, dir)
		for _, name := range []string{kind + "1", kind + "2", kind + "3"} {
			hold(t, p, name)
		}
		if n := instances(t, p.PID()); n != want {
			t.Errorf("a holder of three locks (%s) has %d inotify instances, want %d", kind, n, want)
		}
	}
}
