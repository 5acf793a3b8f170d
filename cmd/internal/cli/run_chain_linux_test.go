package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// forms are ways in which commands start processes that leave their group, their session or
// their parent. Each runs w.sh, which writes a line into the log every tenth of a second.
var forms = map[string]string{
	"plain":   `sh w.sh plain`,
	"timeout": `timeout 600 sh w.sh timeout; true`,
	"set -m":  `set -m; sh w.sh set-m & wait`,
	"setsid":  `setsid sh w.sh setsid & wait`,
	"session": `exec detach sh w.sh session`,
	"nested":  `fencelock run inner -- sh w.sh nested`,
	"daemon":  `(setsid sh -c 'sh w.sh daemon & exit' </dev/null >/dev/null 2>&1 &); exec sleep 600`,
}

// pythonForm starts the process in a new session from Python. It uses the interpreter of the
// system, since one of a version manager in PATH can take seconds to start.
const python, pythonForm = "/usr/bin/python3", `exec ` + python + ` -c 'import subprocess
n = subprocess.DEVNULL
subprocess.Popen(["sh", "w.sh", "python"], start_new_session=True, close_fds=True, stdin=n, stdout=n, stderr=n).wait()'`

func init() { programs["detach"] = detach }

// detach is a program that runs its arguments as a command in a new session, without the
// descriptors that it has inherited, and waits for that command.
func detach() {
	check(unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC))
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	check(cmd.Run())
}

const writer = `echo $1 >>up; while :; do echo $1 >>log; sleep 0.1; done`

// chainHost returns a host with the script w.sh, and a URL of the engine.
func chainHost(t *testing.T, engine string) (h host, url string) {
	h = newHost(t)
	must(t, os.WriteFile(h.path("w.sh"), []byte(writer), 0o600))
	url = "file://" + h.path("locks")
	if engine == "redis" {
		url = "redis://" + redistest.StartRedis(t).Addr()
	}
	return h, url
}

// in returns a fencelock command that runs in the directory of the host.
func (h host) in(url string, args ...string) *exec.Cmd {
	cmd := exec.Command("fencelock", args...)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "FENCELOCK_URL="+url)
	return cmd
}

// lines counts the lines of a file. A missing file has none.
func (h host) lines(name string) int {
	text, _ := os.ReadFile(h.path(name))
	return strings.Count(string(text), "\n")
}

// TestNothingEscapes kills or freezes a wrapper whose command has started processes in every form.
// When the next process holds the lock, none of them writes any more. With FENCELOCK_SLOW set, each
// form is tested with a wrapper of its own, four times.
func TestNothingEscapes(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: the command starts processes that leave its group or session", verdict.Safe)
	cases, times := map[string]string{"all": allForms()}, 1
	if os.Getenv("FENCELOCK_SLOW") != "" {
		cases, times = maps.Clone(forms), 4
		if _, err := os.Stat(python); err == nil {
			cases["python"] = pythonForm
		}
	}
	for _, engine := range []string{"files", "redis"} {
		for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
			for form, script := range cases {
				t.Run(fmt.Sprintf("%s/%s/%s", engine, unix.SignalName(sig), form), func(t *testing.T) {
					t.Parallel()
					for range times {
						escape(t, engine, sig, script, writersOf(form))
					}
				})
			}
		}
	}
}

// allForms is a script that starts a writer in every form.
func allForms() string {
	all := "("
	for _, form := range forms {
		all += "(" + form + ") & "
	}
	return all + "wait)"
}

// writersOf returns how many writers a form starts.
func writersOf(form string) int {
	if form == "all" {
		return len(forms)
	}
	return 1
}

// escape runs a script, sends sig to its wrapper, and fails if the writers of the script write
// while the next holder has the lock.
func escape(t *testing.T, engine string, sig unix.Signal, script string, writers int) {
	h, url := chainHost(t, engine)
	old := h.starts(t, url, script, writers)
	must(t, old.Process.Signal(sig))
	if engine == "files" && sig == unix.SIGSTOP { // on files a frozen wrapper keeps the lock
		if err := h.in(url, "run", "-w", "2s", "x", "--", "true").Run(); exitCodeOf(err) != exitBusy {
			t.Errorf("a frozen wrapper has lost its lock: %v", err)
		}
		must(t, old.Process.Kill())
	}
	h.succeeds(t, url)
}

// succeeds runs a command as the next holder, and fails if the writers write beside it.
func (h host) succeeds(t *testing.T, url string) {
	t.Helper()
	next := h.in(url, "run", "-w", "2m", "x", "-c", "wc -l <log >before; sleep 1; wc -l <log >after")
	must(t, next.Run())
	before, after := h.number(t, "before"), h.number(t, "after")
	t.Logf("%d lines, and %d beside the next holder", before, after-before)
	if before == 0 || before != after {
		t.Errorf("%d lines were written beside the next holder", after-before)
	}
}

// starts returns a wrapper whose writers all write. If a busy machine loses the lock before that,
// starts starts another wrapper.
func (h host) starts(t *testing.T, url, script string, writers int) *exec.Cmd {
	for {
		cmd := h.in(url, "run", "--ttl", "10s", "x", "-c", script)
		must(t, cmd.Start())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }() // ends when the cleanup kills the command
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		over := false
		eventually(t, "all write", func() bool {
			select {
			case <-ended:
				over = true
			default:
			}
			return over || h.lines("up") == writers
		})
		if !over {
			return cmd
		}
		must(t, os.RemoveAll(h.path("up")))
	}
}

// number reads a number that a command has written to a file.
func (h host) number(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(h.path(name))
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return n
}

func init() { programs["rooted"] = rooted }

// rooted is a program, "rooted FILE", which is installed as a set-user-ID program of root. It sets
// all its user IDs to root, so that no other user can signal it, and writes its process number into
// FILE.
func rooted() {
	check(unix.Setresuid(0, 0, 0))
	check(os.WriteFile(os.Args[1], []byte(strconv.Itoa(os.Getpid())), 0o600))
	time.Sleep(10 * time.Minute)
}

func init() { programs["leader"] = leader }

// leader is "fencelock elect x -- ARG...". It creates the file "released" when it releases a lock.
func leader() {
	path, err := supervise.Lookup(os.Args[1])
	check(err)
	engine, _, err := engineurl.Open(context.Background(), os.Getenv("FENCELOCK_URL"), nil)
	check(err)
	c := &electCmd{
		command: command{Name: "x", Command: os.Args[1:], TTL: 5 * time.Second, Signal: "TERM", KillAfter: time.Second / 2},
		hooks:   hooks{Timeout: byDefault},
	}
	check(c.check())
	err = c.lead(&App{Context: context.Background(), Stderr: os.Stderr}, tellsRelease{engine}, path)
	printError(os.Stderr, err)
	os.Exit(exitCode(err))
}

// tellsRelease is an engine that creates the file "released" in each release.
type tellsRelease struct{ driver.Engine }

func (e tellsRelease) Release(ctx context.Context, l driver.Lease) error {
	check(os.WriteFile("released", nil, 0o600))
	return e.Engine.Release(ctx, l)
}

// nobodys returns a host on which the user nobody can run fencelock, and rooted as root.
func nobodys(t *testing.T) host {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a set-user-ID program of root")
	}
	h := newHost(t)
	self, err := os.Executable()
	must(t, err)
	for name, mode := range map[string]os.FileMode{"fencelock": 0o755, "rooted": 0o755 | os.ModeSetuid} {
		must(t, exec.Command("cp", self, h.path(name)).Run()) // cp writes the file, so that no child of this process has it open
		must(t, os.Chmod(h.path(name), mode))
	}
	must(t, os.Chmod(h.dir, 0o777))
	t.Cleanup(func() {
		if text, err := os.ReadFile(h.path("pid")); err == nil {
			if pid, err := strconv.Atoi(string(text)); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
			}
		}
	})
	return h
}

// asNobody returns a fencelock command that runs as the user nobody.
func (h host) asNobody(url string, args ...string) *exec.Cmd {
	cmd := h.in(url, args...)
	cmd.Path, cmd.Args[0] = h.path("fencelock"), h.path("fencelock")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// isStuck runs a wrapper whose command survives when the lock is broken. It fails unless the
// wrapper reports that and exits.
func (h host) isStuck(t *testing.T, url string, wrapper *exec.Cmd) {
	t.Helper()
	said, err := os.Create(h.path("said")) // a pipe would stay open as long as the command runs
	must(t, err)
	defer said.Close()
	wrapper.Stderr = said
	state := finish(t, wrapper, func() {
		appears(t, h.path("pid"))
		must(t, h.asNobody(url, "break", "x", "--reason", "a test").Run())
	})
	text, err := os.ReadFile(h.path("said"))
	must(t, err)
	if state.ExitCode() != exitLost {
		t.Errorf("%v", state)
	}
	if !strings.Contains(string(text), "processes of the command belong to another user and cannot be killed (1); the lock is not released while they run") {
		t.Errorf("it said %q", text)
	}
}

// TestCommandThatIsAnotherUser: a process that cannot be killed is reported, and the lock is not
// released while it runs.
func TestCommandThatIsAnotherUser(t *testing.T) {
	t.Parallel()
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		verdict.Is(t, "fencelock run: a process of the command becomes another user, on a server", verdict.Guarded)
		h := nobodys(t)
		url := "redis://" + redistest.StartRedis(t).Addr()
		old := h.asNobody(url, "run", "--ttl", "5s", "-k", "500ms", "x", "--", "./rooted", "pid")
		h.isStuck(t, url, old)
		if pid := h.number(t, "pid"); !runs(pid) {
			t.Error("the command was killed after all")
		}
	})
	t.Run("elect", func(t *testing.T) {
		t.Parallel()
		h := nobodys(t)
		url := "redis://" + redistest.StartRedis(t).Addr()
		leader := func(words ...string) *exec.Cmd {
			cmd := h.asNobody(url)
			cmd.Args = append([]string{"leader"}, words...)
			return cmd
		}
		if out, err := leader("true").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		must(t, os.Remove(h.path("released")))
		h.isStuck(t, url, leader("./rooted", "pid"))
		if pid := h.number(t, "pid"); !runs(pid) {
			t.Error("the command was killed after all")
		}
		if _, err := os.Stat(h.path("released")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v; the lock was released while the command runs", err)
		}
	})
	t.Run("hidden", func(t *testing.T) { // /proc is mounted with hidepid, in a namespace that ends with the wrapper
		t.Parallel()
		h := nobodys(t)
		unshare := []string{"unshare", "-m", "-p", "-f", "sh", "-c", `mount -t proc -o hidepid=2 proc /proc && exec "$@"`, "sh"}
		if err := exec.Command(unshare[0], append(unshare[1:], "true")...).Run(); err != nil {
			t.Skipf("this machine does not let us mount /proc: %v", err)
		}
		url := "redis://" + redistest.StartRedis(t).Addr()
		old := h.in(url, unshare[1:]...)
		old.Path, _ = exec.LookPath(unshare[0])
		old.Args = append(unshare, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
			h.path("fencelock"), "run", "--ttl", "5s", "-k", "500ms", "x", "--", "./rooted", "pid")
		h.isStuck(t, url, old)
	})
	for _, sig := range []unix.Signal{unix.SIGKILL, 0} {
		t.Run("files/"+unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			verdict.Is(t, "fencelock run: a process of the command becomes another user, on files", verdict.Safe)
			h := nobodys(t)
			url := "file://" + h.path("locks")
			old := h.asNobody(url, "run", "-k", "500ms", "x", "--", "./rooted", "pid")
			finish(t, old, func() {
				appears(t, h.path("pid"))
				if sig == 0 { // break waits some time for the holder to end, so it runs in the background
					breaker := h.asNobody(url, "break", "x", "--reason", "a test")
					must(t, breaker.Start())
					t.Cleanup(func() { _ = breaker.Process.Kill(); _ = breaker.Wait() }) // it was killed
				} else {
					must(t, old.Process.Signal(sig))
				}
			})
			pid := h.number(t, "pid")
			if err := h.asNobody(url, "run", "-w", "1s", "x", "--", "true").Run(); exitCodeOf(err) != exitBusy {
				t.Errorf("%v; the lock was given back while the command runs", err)
			}
			must(t, unix.Kill(pid, unix.SIGKILL))
			if err := h.asNobody(url, "run", "-w", "1m", "x", "--", "true").Run(); err != nil {
				t.Errorf("%v; the command has ended, and the lock is not free", err)
			}
		})
	}
}
