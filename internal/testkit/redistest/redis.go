// Package redistest starts Redis servers for tests: single ones, with replicas, behind Sentinel,
// and in a Cluster.
package redistest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/internal/freeze"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// A Redis is a private redis-server (or valkey-server) on a loopback port. It is stopped at the end
// of the test, and killed if the test binary dies. Addr, Port, Dir, Do and TryDo are safe for
// concurrent use.
type Redis struct {
	exe      string
	sentinel bool
	settings []string // as given: "--name", "value", ...
	port     int
	home     hosttest.Home
	tls      *tls.Config // how Do connects; nil without TLS
	password string
	env      []string // of the server, beside ours

	mu     sync.Mutex    // guards the rest
	cmd    *exec.Cmd     // of the server; nil while stopped
	gone   chan struct{} // closed when cmd has ended
	frozen bool
}

// tenant is a server, which removes its file when it ends in order.
var tenant = hosttest.Tenant{Stop: `
pid=$(cat "$1"/pid 2>/dev/null) && test "$pid" -gt 1 || exit 0
case $(ps -ww -o args= -p "$pid") in *redis* | *valkey*) kill -KILL "$pid" ;; esac`}

// StartRedis starts a server without persistence on a free port of 127.0.0.1. The args are further
// settings as on its command line: "--appendonly", "yes". They override the defaults.
func StartRedis(t hosttest.TB, args ...string) *Redis {
	t.Helper()
	return StartRedisBy(t, nil, args...)
}

// StartRedisBy is StartRedis for a server that uses a clock, also after restarts.
func StartRedisBy(t hosttest.TB, c *hosttest.Clock, args ...string) *Redis {
	t.Helper()
	r := &Redis{settings: args, env: c.Env()}
	r.launch(t)
	return r
}

// launch makes r's directory and starts its server on a port that is free.
func (r *Redis) launch(t hosttest.TB) {
	t.Helper()
	exe, err := redisExecutable()
	if err != nil {
		t.Fatal(err)
	}
	r.exe, r.password = exe, setting(r.settings, "--requirepass")
	r.home = hosttest.NewHome(t, tenant, "redis")
	t.Cleanup(func() {
		if err := r.end(syscall.SIGKILL); err != nil {
			t.Errorf("end %s: %v", r.Addr(), err)
		}
		r.home.Remove(t)
	})
	r.home.Launch(t, func(port int) error {
		r.port = port
		if err := os.WriteFile(r.config(), r.configText(t), 0o600); err != nil {
			return err
		}
		return r.start(t)
	})
}

// redisExecutable finds the server program: that of FENCELOCK_REDIS, or the one that
// is installed. It says how to get one if there is none: tests never skip for want of
// a server.
func redisExecutable() (string, error) {
	if exe := os.Getenv("FENCELOCK_REDIS"); exe != "" {
		return exec.LookPath(exe)
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if exe, err := exec.LookPath(name); err == nil {
			return exe, nil
		}
	}
	return "", fmt.Errorf("redis-server is not installed: make test installs it as root on Debian; " +
		"or: apt-get install redis-server, dnf install valkey, brew install redis")
}

// redisMajor is the first number of the server's version, of which it says "v=7.0.15".
func redisMajor(t hosttest.TB, exe string) (major int) {
	t.Helper()
	out, err := exec.Command(exe, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(out), "v=")
	if _, err := fmt.Sscanf(version, "%d.", &major); err != nil {
		t.Fatalf("%s calls itself %q", exe, out)
	}
	return major
}

// setting returns the last value given for a setting, or "".
func setting(args []string, name string) (value string) {
	for i, a := range args[:max(0, len(args)-1)] {
		if a == name {
			value = args[i+1]
		}
	}
	return value
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (r *Redis) config() string  { return filepath.Join(r.home.Dir, "redis.conf") }
func (r *Redis) pidfile() string { return filepath.Join(r.home.Dir, "pid") }

// configText writes the configuration as a file and not as arguments, because
// Sentinel and CONFIG REWRITE must be able to change it.
func (r *Redis) configText(t hosttest.TB) []byte {
	ours := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.home.Dir, "--pidfile", r.pidfile(),
		"--daemonize", "no", "--logfile", "", "--protected-mode", "no",
	}
	if !r.sentinel {
		ours = append(ours, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	}
	if r.tls != nil {
		ours = append(ours, "--port", "0", "--tls-port", strconv.Itoa(r.port))
	}
	if setting(r.settings, "--cluster-enabled") == "yes" && redisMajor(t, r.exe) >= 7 {
		ours = append(ours, "--cluster-port", strconv.Itoa(hosttest.FreePort(t)))
	}
	var b bytes.Buffer
	for _, a := range append(ours, r.settings...) {
		switch name, ok := strings.CutPrefix(a, "--"); {
		case ok:
			b.WriteString("\n" + name)
		case a == "":
			b.WriteString(` ""`)
		default:
			b.WriteString(" " + a)
		}
	}
	return append(b.Bytes(), '\n')
}

// start runs the server and waits until it answers.
func (r *Redis) start(t hosttest.TB) error {
	t.Helper()
	args := []string{r.config()}
	if r.sentinel {
		args = append(args, "--sentinel")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmd = r.home.Command(r.exe, args...)
	r.cmd.Env = append(r.cmd.Env, r.env...)
	r.gone, r.frozen = r.home.Run(t, r.cmd), false
	return r.home.Await(t, r.gone, func() bool { return r.answers(r.cmd.Process.Pid) })
}

// answers reports whether the server answers, has loaded its data, and is the process we started,
// not another one on the same port. A server that refuses the command by its ACL counts as up.
func (r *Redis) answers(pid int) bool {
	info, err := r.TryDo("INFO")
	if isReply(err) {
		return !strings.HasPrefix(err.Error(), "LOADING")
	}
	return err == nil && infoField(info, "process_id") == strconv.Itoa(pid) && infoField(info, "loading") != "1"
}

// infoField returns one field of what INFO answers, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Addr returns the address of the server, "127.0.0.1:port".
func (r *Redis) Addr() string { return addr(r.port) }

// Port returns the port of the server. It stays the same after a restart.
func (r *Redis) Port() int { return r.port }

// Dir returns the server's directory, with its log and data.
func (r *Redis) Dir() string { return r.home.Dir }

// PID returns the server's process id, 0 while it is stopped.
func (r *Redis) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return 0
	}
	return r.cmd.Process.Pid
}

// up reports whether the server can answer.
func (r *Redis) up() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cmd != nil && !r.frozen
}

// Stop stops the server with SIGTERM, and returns when it has ended.
func (r *Redis) Stop(t hosttest.TB) {
	t.Helper()
	if err := r.end(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

// Kill kills the server, as kill -9 does, and returns when it has ended.
func (r *Redis) Kill(t hosttest.TB) {
	t.Helper()
	if err := r.end(syscall.SIGKILL); err != nil {
		t.Fatalf("kill: %v", err)
	}
}

// end ends the process, if there is one. One that does not end within 30 s is killed, and an error
// says so.
func (r *Redis) end(sig syscall.Signal) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	for _, sig := range []syscall.Signal{sig, syscall.SIGCONT} { // one that is frozen ends when it continues
		if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-r.gone:
	case <-time.After(30 * time.Second):
		err = fmt.Errorf("process %d did not heed signal %v for 30 s and was killed", r.cmd.Process.Pid, sig)
		_ = r.cmd.Process.Kill()
		<-r.gone
	}
	r.cmd, r.frozen = nil, false
	_ = os.Remove(r.pidfile()) // its number may get another owner
	return err
}

// Restart stops the server if it runs, and starts it again on the same port, with the same
// directory and settings.
func (r *Redis) Restart(t hosttest.TB) {
	t.Helper()
	r.Stop(t)
	if err := r.start(t); err != nil {
		t.Fatalf("restart: %v", err)
	}
}

// Freeze stops the server, as SIGSTOP does, and returns when it has stopped. Its connections stay
// open.
func (r *Redis) Freeze(t hosttest.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		t.Fatal("freeze: the server is stopped")
	}
	r.frozen = true
	if err := freeze.Process(r.cmd.Process); err != nil {
		t.Fatal(err)
	}
}

// Thaw resumes a frozen server.
func (r *Redis) Thaw(t hosttest.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil || !r.frozen {
		return
	}
	r.frozen = false
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
