package supervise_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalsWhileAWatchdogStarts: if signals to all processes, as from timeout(1), end a watchdog
// that is starting, another one starts the command, once.
func TestSignalsWhileAWatchdogStarts(t *testing.T) {
	t.Parallel()
	for all := 0; all < 5; {
		var out bytes.Buffer
		cmd := exec.Command("wrap", "echo", "started")
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }() // ends with the program
		signalled := map[int]bool{}
		for over := false; !over; {
			select {
			case err := <-ended:
				if over = true; err != nil || !strings.HasPrefix(out.String(), "started\nstatus 0x0 ") {
					t.Errorf("%v after signals to %d watchdogs:\n%s", err, len(signalled), out.String())
				}
				all += len(signalled)
			default:
				for _, pid := range childrenOf(cmd.Process.Pid) {
					if !signalled[pid] && len(signalled) < 3 {
						signalled[pid] = unix.Kill(pid, unix.SIGTERM) == nil
					}
				}
			}
		}
	}
}

// childrenOf returns the children of a process.
func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
