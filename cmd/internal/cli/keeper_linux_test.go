package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// elsewhere runs a command on what looks like another host: in a network namespace and with a host
// name of its own. It reaches a server only by a socket in the file system.
func (h host) elsewhere(url string, args ...string) *exec.Cmd {
	cmd := h.in(url, args...)
	cmd.Path, _ = exec.LookPath("unshare")
	cmd.Args = append([]string{"unshare", "-rnu", "sh", "-c", `hostname elsewhere && exec fencelock "$@"`, "sh"}, args...)
	return cmd
}

// acquired runs acquire with more flags and returns what it prints.
func (h host) acquired(t *testing.T, url string, args ...string) (k acquireView) {
	t.Helper()
	out, err := h.in(url, append([]string{"acquire", "--max-hold", "10m", "--json"}, args...)...).Output()
	must(t, err)
	must(t, json.Unmarshal(out, &k))
	return k
}

// TestReleaseOnAnotherHost: a lock can be released, but not renewed, on another host than that of
// its keeper. The process of --with-pid gets no signal then.
func TestReleaseOnAnotherHost(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-rnu", "sh", "-c", "hostname elsewhere").CombinedOutput(); err != nil {
		t.Skipf("this user may not make another host: %v %s", err, out)
	}
	h := newHost(t)
	redistest.StartRedis(t, "--unixsocket", h.path("redis.sock"))
	url := "redis+unix://" + h.path("redis.sock")
	worker := exec.Command("sh", "-c", "trap 'echo TERM >signalled' TERM; read -r end")
	worker.Dir = h.dir
	end, err := worker.StdinPipe()
	must(t, err)
	must(t, worker.Start())
	k := h.acquired(t, url, "--with-pid", fmt.Sprint(worker.Process.Pid), "x")

	out, err := h.elsewhere(url, "renew", k.Handle, "--max-hold", "1h").CombinedOutput()
	if exitCodeOf(err) != exitNotHeld || !strings.Contains(string(out), fmt.Sprintf("the keeper of x is %d@", k.PID)) {
		t.Errorf("renew elsewhere: %v, %s", err, out)
	}
	must(t, h.in(url, "renew", k.Handle, "--max-hold", "1h").Run())
	if shown := h.most(t, h.in(url, "status", "x", "--json")); shown < time.Hour {
		t.Errorf("the keeper's host shows a maximum of %v", shown)
	}
	if shown := h.most(t, h.elsewhere(url, "status", "x", "--json")); shown != 10*time.Minute {
		t.Errorf("another host shows a maximum of %v", shown)
	}

	must(t, h.elsewhere(url, "release", k.Handle).Run())
	must(t, h.in(url, "run", "-n", "x", "--", "true").Run())
	eventually(t, "the keeper ends", func() bool { return !running(k.PID) })
	must(t, end.Close())
	_ = worker.Wait() // read fails at the end of the input
	if h.lines("signalled") > 0 {
		t.Error("the process got a signal")
	}
	if err := h.elsewhere(url, "release", k.Handle).Run(); exitCodeOf(err) != exitLost {
		t.Errorf("a second release: %v", err)
	}
}

// TestLostReleaseMessage: if the server's message about a release elsewhere does not arrive, the
// keeper finds the record, and sends no signal. Without a record it does.
func TestLostReleaseMessage(t *testing.T) {
	t.Parallel()
	h, server := newHost(t), redistest.StartRedis(t)
	url := "redis://" + server.Addr()
	for _, recorded := range []bool{true, false} {
		name := fmt.Sprint("recorded-", recorded)
		worker := exec.Command("sh", "-c", "trap 'echo TERM >>$0; exit' TERM; echo yes >$0.ready; while test ! -e $0.end; do sleep 0.05; done", h.path(name))
		must(t, worker.Start())
		eventually(t, "the worker is ready", func() bool { return h.lines(name+".ready") > 0 })
		k := h.acquired(t, url, "--ttl", "3s", "--with-pid", fmt.Sprint(worker.Process.Pid), name)
		if recorded {
			a := &App{Context: t.Context(), URL: url}
			must(t, a.within(a.Context, func(engine driver.Engine) error {
				recordRelease(a.Context, fencelock.New(engine, nil), k.Owner)
				return nil
			}))
		}
		if n := server.Do(t, "DEL", "lock:"+name); n != "1" {
			t.Fatalf("deleted %s keys of the lock", n)
		}
		eventually(t, "the keeper notices the end of its lock, and ends", func() bool { return !running(k.PID) })
		must(t, os.WriteFile(h.path(name+".end"), nil, 0o600))
		must(t, worker.Wait())
		if signalled := h.lines(name) > 0; signalled == recorded {
			t.Errorf("recorded: %v; the process got a signal: %v", recorded, signalled)
		}
	}
}

// TestReleaseElsewhereLeavesARecord: release writes the record that the keeper looks for.
func TestReleaseElsewhereLeavesARecord(t *testing.T) {
	t.Parallel()
	h, server := newHost(t), redistest.StartRedis(t)
	a := &App{Context: t.Context(), URL: "redis://" + server.Addr()}
	k := h.acquired(t, a.URL, "--detach", "x")
	must(t, (&releaseCmd{handle{k.Handle}}).releaseElsewhere(a))
	eventually(t, "the keeper ends", func() bool { return !running(k.PID) })
	must(t, a.within(a.Context, func(engine driver.Engine) error {
		if !releaseRecorded(fencelock.New(engine, nil), k.Owner) {
			t.Error("there is no record")
		}
		return nil
	}))
}

// most returns the maximum hold that a command shows.
func (h host) most(t *testing.T, cmd *exec.Cmd) time.Duration {
	t.Helper()
	out, err := cmd.Output()
	must(t, err)
	var v struct {
		Holders []struct {
			Since time.Time `json:"since"`
			Until time.Time `json:"max_until"`
		} `json:"holders"`
	}
	must(t, json.Unmarshal(out, &v))
	if len(v.Holders) != 1 {
		t.Fatalf("%s", out)
	}
	return v.Holders[0].Until.Sub(v.Holders[0].Since)
}

// TestKeeperHidesItsURL: the arguments of a keeper, which all users can read, have no URL.
func TestKeeperHidesItsURL(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	url := "file://" + h.path("locks-of-the-url")
	for i, args := range [][]string{{"--url", url}, {"--url=" + url}} {
		k := h.acquired(t, "mem:", append(args, "--detach", "x")...)
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", k.PID))
		must(t, err)
		if strings.Contains(string(line), "url") || !strings.Contains(string(line), "--detach") {
			t.Errorf("%d: %q", i, line)
		}
		out, err := h.in(url, "release", k.Handle).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestKeepersLeaveNothing: after many acquires and releases no process is left.
func TestKeepersLeaveNothing(t *testing.T) {
	t.Parallel()
	times := 30
	if os.Getenv("FENCELOCK_SLOW") != "" {
		times = 1000
	}
	h := newHost(t)
	url := "file://" + h.path("locks")
	for i := range times {
		k := h.acquired(t, url, "--detach", fmt.Sprint("name-", i%7))
		must(t, h.in(url, "release", k.Handle).Run())
	}
	eventually(t, "all keepers end", func() bool { return len(processesWith(t, url)) == 0 })
}

// processesWith returns the processes whose environment has the URL.
func processesWith(t *testing.T, url string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	for _, file := range all {
		env, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(env), "FENCELOCK_URL="+url+"\x00") {
			found = append(found, file)
		}
	}
	return found
}

// TestKilledKeeper: if the keeper is killed, the process of --with-pid gets the signal. On files, nobody else
// gets the lock before this process has ended, also if the first guard of the keeper was killed before.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct{ what, url string }{
		{"files", "file://" + h.path("locks")},
		{"files, second guard", "file://" + h.path("locks")},
		{"redis", "redis://" + redistest.StartRedis(t).Addr()},
	} {
		t.Run(c.what, func(t *testing.T) {
			worker := exec.Command("sh", "-c", "trap 'echo TERM >signalled' TERM; echo yes >ready; until test -e end; do sleep 0.05; done")
			worker.Dir = t.TempDir()
			must(t, worker.Start())
			in := func(name string) string { return filepath.Join(worker.Dir, name) }
			exists := func(name string) bool { _, err := os.Stat(in(name)); return err == nil }
			eventually(t, "the worker is ready", func() bool { return exists("ready") })
			k := h.acquired(t, c.url, "--with-pid", fmt.Sprint(worker.Process.Pid), "x")
			if c.what == "files, second guard" {
				first := guardOf(t, k.PID)
				must(t, syscall.Kill(first, syscall.SIGKILL))
				eventually(t, "there is another guard", func() bool { g := guardOf(t, k.PID); return g != 0 && g != first })
				must(t, h.in(c.url, "renew", k.Handle, "--max-hold", "10m").Run())
			}
			must(t, syscall.Kill(k.PID, syscall.SIGKILL))
			eventually(t, "the process gets the signal", func() bool { return exists("signalled") })
			if err := h.in(c.url, "run", "-n", "x", "--", "true").Run(); exitCodeOf(err) != exitBusy {
				t.Errorf("while the process of a killed keeper works: %v", err)
			}
			must(t, os.WriteFile(in("end"), nil, 0o600))
			must(t, worker.Wait())
			if c.what != "redis" {
				must(t, h.in(c.url, "run", "-w", "60", "x", "--", "true").Run())
			}
		})
	}
	eventually(t, "no process is left", func() bool { return len(processesWith(t, "file://"+h.path("locks"))) == 0 })
}

// TestFrozenGuard: a keeper whose guard was stopped releases its lock, and the name is free.
func TestFrozenGuard(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	url := "file://" + h.path("locks")
	k := h.acquired(t, url, "--with-pid", fmt.Sprint(os.Getpid()), "x")
	must(t, syscall.Kill(guardOf(t, k.PID), syscall.SIGSTOP))
	must(t, h.in(url, "release", k.Handle).Run())
	must(t, h.in(url, "run", "-w", "60", "x", "--", "true").Run())
	eventually(t, "no process is left", func() bool { return len(processesWith(t, url)) == 0 })
}

// guardOf returns the guard of a keeper, which is its only child, or 0.
func guardOf(t *testing.T, keeper int) (pid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", keeper))
	must(t, err)
	for _, file := range threads {
		text, _ := os.ReadFile(file) // the thread may have ended
		_, _ = fmt.Sscan(string(text), &pid)
	}
	return pid
}
