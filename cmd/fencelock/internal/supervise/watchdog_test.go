//go:build unix

package supervise_test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
)

// A watchdog that ended the command says so with its exit code, and the lock counts as
// lost even if the wrapper did not notice.
func TestWatchdogTellsThatItKilled(t *testing.T) {
	const exited = 8 // the exit code is above the signal in a wait status
	for _, c := range []struct {
		watchdog, command unix.WaitStatus
		want              bool
	}{
		{supervise.HasKilled << exited, unix.WaitStatus(unix.SIGKILL), true},
		{supervise.HasKilled << exited, 0, false}, // it came too late
		{0, unix.WaitStatus(unix.SIGKILL), false},
		{unix.WaitStatus(unix.SIGKILL), unix.WaitStatus(unix.SIGKILL), false},
	} {
		if got := supervise.EndAfter(c.watchdog, c.command).Late; got != c.want {
			t.Errorf("watchdog %#x, command %#x: %v", c.watchdog, c.command, got)
		}
	}
}

// A wrapper and its watchdog may be of two versions, so what they have agreed on stays.
func TestWatchdogProtocol(t *testing.T) {
	if supervise.WatchdogVariable != "FENCELOCK_WATCHDOG" || supervise.HasKilled != 76 {
		t.Errorf("the watchdog is made by %s and exits with %d", supervise.WatchdogVariable, supervise.HasKilled)
	}
	deadline := time.Now().Add(time.Hour)
	latest := supervise.BootTime() + time.Hour - supervise.KillReserve
	told, err := supervise.Told(7, deadline)
	if err != nil {
		t.Fatal(err)
	}
	var group int
	var until time.Duration
	if n, err := fmt.Sscanf(told, "group %d\nuntil %d\ngoodbye\n", &group, &until); n != 2 || err != nil || group != 7 || strings.Count(told, "\n") != 3 {
		t.Fatalf("told %q: %v", told, err)
	}
	if early := latest - until; early < 0 || early > time.Hour/2 { // never too late
		t.Errorf("the deadline is %v early", early)
	}
}

// A watchdog that comes to run when the deadline is long over, after a freeze or on a busy
// machine, reads the number of the command before it takes it for unknown, and kills the
// wrapper.
func TestLateWatchdogReadsItsPipe(t *testing.T) {
	for _, c := range []struct {
		told  []string
		kill  bool
		group int
	}{
		{[]string{"until 1", "group 7"}, true, 7},
		{[]string{"until 1", "until 2", "group 7"}, true, 7},
		{[]string{"until 1"}, true, 0},
		{[]string{"until 1", "goodbye"}, false, 0},
	} {
		lines := make(chan string, len(c.told))
		for _, line := range c.told {
			lines <- line
		}
		if kill, group := supervise.Watch(lines); kill != c.kill || group != c.group {
			t.Errorf("told %q: kills %v, group %d", c.told, kill, group)
		}
	}
}

// A wrapper that is gone without a goodbye is avenged at once, and one that said it is not.
func TestWatchdogAndTheEndOfItsPipe(t *testing.T) {
	for _, c := range []struct {
		told []string
		kill bool
	}{
		{[]string{"group 7"}, true},
		{[]string{"group 7", "goodbye"}, false},
	} {
		lines := make(chan string, len(c.told))
		for _, line := range c.told {
			lines <- line
		}
		close(lines)
		if kill, _ := supervise.Watch(lines); kill != c.kill {
			t.Errorf("told %q: kills %v", c.told, kill)
		}
	}
}

// TestWrapperThatFreezesAsItStarts: the watchdog knows the deadline before there is a
// command, and kills the wrapper whose command it was not told of.
func TestWrapperThatFreezesAsItStarts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills a command with its parent")
	}
	cmd := exec.Command("freezing")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	var pid int
	_, err = fmt.Fscan(out, &pid)
	must(t, err)
	for end := time.Now().Add(3 * time.Minute); runs(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command is not killed")
		}
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the wrapper: %v", err)
	}
}

// runs reports whether a process runs; a corpse does not.
func runs(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
