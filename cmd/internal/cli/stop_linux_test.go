package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// strays is a command that starts two daemons, in sessions of their own and without the descriptors of
// the lock; the second one has lost its parent too. It writes their process numbers to the file $0.
const strays = `echo yes >"$0.began"
detach sh -c 'echo $$ >>"$0"; exec sleep 600' "$0" &
(detach sh -c 'echo $$ >>"$0"; exec sleep 600' "$0" >/dev/null 2>&1 &)
until test "$(wc -l <"$0")" = 2; do sleep 0.02; done
echo yes >"$0.up"
wait`

// dockerStop is how long "docker stop" waits between TERM and KILL.
const dockerStop = 10 * time.Second

// TestContainerStops: a leader that is stopped as "docker stop" does ends at TERM with the daemons that
// its command has left, and the next one leads after that. With FENCELOCK_SLOW set, there are 100 stops.
func TestContainerStops(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("FENCELOCK_SLOW") != "" {
		rounds = 50
	}
	for _, engine := range []string{"files", "redis"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			h, url := chainHost(t, engine)
			start := func(round int) (leader *exec.Cmd, pids string) {
				pids = h.path(fmt.Sprint("pids", round))
				leader = h.in(url, "elect", "x", "--", "sh", "-c", strays, pids)
				leader.Stderr = t.Output()
				must(t, os.WriteFile(pids, nil, 0o600))
				must(t, leader.Start())
				t.Cleanup(func() { leader.Process.Kill() })
				return leader, pids
			}
			var took []time.Duration
			leader, pids := start(0)
			for round := range rounds {
				appears(t, pids+".up")
				next, nextPids := start(round + 1)
				eventually(t, "the next one waits", func() bool {
					out, err := h.in(url, "--json", "status", "x").Output()
					return err == nil && strings.Contains(string(out), `"position":1`)
				})
				took = append(took, stop(t, leader, nextPids))
				nobodyRuns(t, pids)
				leader, pids = next, nextPids
			}
			must(t, leader.Process.Signal(unix.SIGTERM))
			_ = leader.Wait() // it ends by TERM
			nobodyRuns(t, pids)
			slices.Sort(took)
			t.Logf("the next leader's command began %v after TERM, at most %v", took[len(took)/2], took[len(took)-1])
		})
	}
}

// stop stops a leader, and returns how long it took until the command of the next one began.
func stop(t *testing.T, leader *exec.Cmd, pids string) time.Duration {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- leader.Wait() }() // ends with the leader
	begun := time.Now()
	must(t, leader.Process.Signal(unix.SIGTERM))
	kill := time.AfterFunc(dockerStop, func() { leader.Process.Kill() })
	defer kill.Stop()
	appears(t, pids+".began")
	took := time.Since(begun)
	if <-ended; !kill.Stop() {
		t.Errorf("the leader has not ended %v after TERM", dockerStop)
	}
	return took
}

// nobodyRuns fails if a process of the file pids runs.
func nobodyRuns(t *testing.T, pids string) {
	t.Helper()
	text, err := os.ReadFile(pids)
	must(t, err)
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if must(t, err); runs(pid) {
			t.Errorf("daemon %d of %s runs", pid, filepath.Base(pids))
		}
	}
}
