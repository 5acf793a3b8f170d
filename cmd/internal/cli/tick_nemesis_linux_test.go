package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestTicksOfCommandsUnderFaults: three hosts start the command of a tick, and a fault meets the
// first of them, or the server, at some step of lock, attempt, start, claim, outcome and release.
// The faults sweep over these steps. Afterwards somebody repeats the call until it is no longer
// refused. Each tick must run once, or again if a command that started was killed or its outcome was
// not recorded; it is never skipped by everybody. Each tick belongs to a job of its own, so that ticks need no waiting.
//
// Package cron has a test of the same name for schedulers in Go.
func TestTicksOfCommandsUnderFaults(t *testing.T) {
	ticks := 14
	if os.Getenv("FENCELOCK_SLOW") != "" {
		ticks = 200
	}
	for name, serve := range map[string]func(*testing.T) tickServer{
		"files":    func(t *testing.T) tickServer { return tickServer{url: "file://" + newHost(t).path("locks")} },
		"redis":    redisForTicks,
		"postgres": postgresForTicks,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			const lanes = 4
			var all sync.WaitGroup
			for lane := range lanes {
				all.Go(func() { // ends after its ticks
					for i := lane; i < ticks && !t.Failed(); i += lanes {
						r := &tickRound{tickServer: s, host: newHost(t), job: fmt.Sprintf("job%d", i)}
						r.play(t, i, ticks)
					}
				})
			}
			all.Wait()
		})
	}
}

// tickServer is what the locks and records of the hosts are on. The functions are nil for files.
type tickServer struct {
	url     string
	restart func() // ends the server as a crash does, and starts it again
	fill    func(full bool)
}

// redisForTicks starts a Redis that keeps its records, and grants nothing for a while after a
// restart. Without memory, it refuses writes as with a full disk.
func redisForTicks(t *testing.T) tickServer {
	server := redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	var mu sync.Mutex // one fault at a time
	return tickServer{
		url: "redis://" + server.Addr() + "?quarantine=on&max-ttl=8s&timeout=1s",
		restart: func() {
			mu.Lock()
			defer mu.Unlock()
			server.Kill(t)
			server.Restart(t)
		},
		fill: func(full bool) {
			mu.Lock()
			defer mu.Unlock()
			limit := "0"
			if full {
				limit = "1"
			}
			server.Do(t, "CONFIG", "SET", "maxmemory", limit)
		},
	}
}

func postgresForTicks(t *testing.T) tickServer {
	server := pgtest.StartPostgres(t)
	var mu sync.Mutex // one fault at a time
	return tickServer{url: server.DSN() + "&max-ttl=8s", restart: func() {
		mu.Lock()
		defer mu.Unlock()
		server.Crash(t)
	}}
}

// tickRound is one tick on three hosts.
type tickRound struct {
	tickServer
	host
	job string

	unrecorded map[string]bool // hosts that cannot have recorded the outcome of a run, or said so
}

// The faults, in the order in which they take turns.
const (
	killed = iota
	crashed
	signalled
	frozen
	filled
	restarted
	unstartable
	faultKinds
)

// play runs a round. The sweep moves the fault from the start of the processes to their end.
func (r *tickRound) play(t *testing.T, i, ticks int) {
	const whole = 400 * time.Millisecond // longer than a run on a machine that is not busy
	kind, after := i%faultKinds, whole*time.Duration(i/faultKinds)/time.Duration(max(1, ticks/faultKinds))
	flags := []string{"-w", "1m"}
	if i%2 == 0 {
		flags = []string{"-n"}
	}
	first := r.start(t, "one", kind == unstartable, flags...)
	others := []*exec.Cmd{r.start(t, "two", false, flags...), r.start(t, "three", false, "-n")}
	time.Sleep(after)
	r.disturb(t, kind, first)
	codes := []int{wait(first)}
	for _, cmd := range others {
		codes = append(codes, wait(cmd))
	}
	r.unrecorded = map[string]bool{}
	for i, on := range []string{"one", "two", "three"} {
		r.unrecorded[on] = slices.Contains([]int{-1, ExitUnavailable, exitLost}, codes[i])
	}
	what := fmt.Sprintf("%s: fault %d after %v, exit codes %v", r.job, kind, after, codes)
	for end := time.Now().Add(scriptPatience); ; time.Sleep(50 * time.Millisecond) {
		code := wait(r.start(t, "repeat", false, "-w", "1m"))
		codes = append(codes, code)
		if code == 0 || code == exitBusy {
			break
		}
		if code != ExitUnavailable && code != exitLost && code != exitStart || time.Now().After(end) {
			said, _ := os.ReadFile(r.path("said"))
			t.Errorf("%s, and repeated %d:\n%s", what, code, said)
			return
		}
	}
	r.check(t, fmt.Sprint(what, ", in the end ", codes))
}

// start starts the command of the tick on a host. The tick is so long that the round belongs to one.
func (r *tickRound) start(t *testing.T, on string, unstartable bool, flags ...string) *exec.Cmd {
	program := []string{"sh", "-c", `echo start $0 >>"$1"; sleep 0.02; echo end $0 >>"$1"`, on, r.path("log")}
	if unstartable {
		program = []string{r.path("unstartable")}
		if err := os.WriteFile(program[0], []byte("#!/nonesuch\n"), 0o700); err != nil {
			t.Error(err)
		}
	}
	args := append([]string{"run", "--ttl", "8s", "-k", "100ms", "--tick", "300h"}, flags...)
	args = append(append(args, r.job, "--"), program...)
	cmd := exec.Command("sh", append([]string{"-c", `trap "" XFSZ; exec fencelock "$@"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "FENCELOCK_URL="+r.url)
	said, err := os.OpenFile(r.path("said"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
	}
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Error(err)
	}
	return cmd
}

// wait returns the exit code of a process, or -1 if a signal killed it.
func wait(cmd *exec.Cmd) int {
	_ = cmd.Wait() // the state has all
	return cmd.ProcessState.ExitCode()
}

// disturb makes something go wrong for a host or for the server.
func (r *tickRound) disturb(t *testing.T, kind int, cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	switch kind {
	case killed:
		_ = cmd.Process.Kill()
	case crashed: // the whole host
		_ = cmd.Process.Signal(unix.SIGSTOP)
		for _, child := range descendants(pid) {
			_ = unix.Kill(child, unix.SIGKILL)
		}
		_ = cmd.Process.Kill()
	case signalled:
		_ = cmd.Process.Signal(unix.SIGTERM)
	case frozen:
		_ = cmd.Process.Signal(unix.SIGSTOP)
		time.Sleep(9 * time.Second) // longer than the lease
		_ = cmd.Process.Signal(unix.SIGCONT)
	case filled:
		if r.fill != nil {
			r.fill(true)
			time.Sleep(300 * time.Millisecond)
			r.fill(false)
			return
		}
		var limit unix.Rlimit
		if unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit) == nil {
			_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: limit.Max}, nil)
			time.Sleep(300 * time.Millisecond)
			_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
		}
	case restarted:
		if r.restart != nil {
			r.restart()
		}
	}
}

// descendants returns the descendants of a process.
func descendants(pid int) (all []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(text)) {
		var child int
		if _, err := fmt.Sscan(word, &child); err == nil {
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

// check fails the test unless the log shows one run, or another one after a run that was killed or
// not recorded.
func (r *tickRound) check(t *testing.T, what string) {
	text, _ := os.ReadFile(r.path("log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	open, ended, starts := "", false, 0
	for _, line := range lines {
		switch word, on, _ := strings.Cut(line, " "); {
		case word == "start" && (!ended || r.unrecorded[open]):
			open, ended = on, false
			starts++
		case word == "end" && on == open && !ended:
			ended = true
		case word != "":
			t.Errorf("%s: two runs at once, or one after another that was recorded:\n%s", what, text)
			return
		}
	}
	if starts > 0 {
		return
	}
	// A command may be killed before it has written anything.
	jobs := exec.Command("fencelock", "jobs", "--json", r.job)
	jobs.Env = append(os.Environ(), "FENCELOCK_URL="+r.url)
	if out, err := jobs.Output(); err != nil || !strings.Contains(string(out), `"state":"lost"`) && !strings.Contains(string(out), `"state":"failed"`) {
		said, _ := os.ReadFile(r.path("said"))
		t.Errorf("%s: nobody ran it: %s, %v\n%s", what, out, err, said)
	} else {
		t.Logf("%s: killed when it had just started", what)
	}
}
