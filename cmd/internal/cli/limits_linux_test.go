package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestLowLimits: if a limit on resources is too low, a verb that holds a lock exits with 71 and says
// which one. It never prints its goroutines. (With fewer threads than the Go runtime needs before the
// program begins, nothing helps.)
func TestLowLimits(t *testing.T) {
	t.Parallel()
	nobody := uint32(54321) // no process has this user or the next ones, so none counts
	program, err := exec.LookPath("fencelock")
	must(t, err)
	for _, limit := range []string{"-n 6", "-n 8", "-n 12", "-n 16", "-n 20", "-f 0", "-u 18", "-u 25"} {
		for _, line := range []string{"run x -- true", "elect x -- true", "once x -- true", "acquire --detach --max-hold 1m x"} {
			if strings.HasPrefix(limit, "-u") && os.Geteuid() != 0 {
				continue // processes of this user count too
			}
			nobody++
			user := nobody
			t.Run(line+"/"+limit, func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				file, err := os.Open(program)
				must(t, err)
				defer file.Close()
				cmd := h.command("bash", "-c", "ulimit "+limit+"; exec /proc/self/fd/3 "+line)
				cmd.ExtraFiles = []*os.File{file} // another user may not search its directory
				if strings.HasPrefix(limit, "-u") {
					must(t, os.Chown(h.dir, int(user), int(user)))
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
				}
				var said bytes.Buffer
				cmd.Stderr = &said
				state := finish(t, cmd, nil)
				if text := said.String(); state.ExitCode() != exitStart || strings.Count(text, "\n") > 3 || !strings.Contains(text, "ulimit "+limit[:2]) {
					t.Errorf("%v; it said %q", state, text)
				}
			})
		}
	}
}
