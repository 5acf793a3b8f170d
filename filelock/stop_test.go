//go:build linux || darwin

package filelock_test

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopMyself stops this process as SIGSTOP does, until it is thawed. The signal may
// take some time to arrive, in which the caller must not go on.
func stopMyself() {
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		panic(err)
	}
	<-thawed
}

// awaitStop returns once a process has stopped.
func awaitStop(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		out, _ := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		if strings.HasPrefix(strings.TrimSpace(string(out)), "T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("process %d did not stop", pid)
}
