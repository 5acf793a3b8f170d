//go:build unix

package pgtest

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A home is the directory of a server that refuses to run as root, and the user it
// runs as. A watcher process ends what runs there and removes it when this test
// binary is gone, however it went.
type home struct {
	dir   string
	cred  *syscall.Credential // nil means as we are
	watch io.Closer           // the watcher acts when this is closed
}

// watchScript runs until its input ends. The arguments of a server name its
// directory, so a number that has found a new owner is left alone.
const watchScript = `
read -r _
for file in "$1"/data/postmaster.pid "$1"/pgbouncer.pid; do
	pid=$(head -n 1 "$file" 2>/dev/null) && test "$pid" -gt 1 || continue
	case $(ps -ww -o args= -p "$pid") in *"$1"*) ;; *) continue ;; esac
	kill -STOP "$pid"
	kill -KILL $(pgrep -P "$pid") "$pid"
done
rm -rf "$1"
`

// newHome makes a directory for the user postgres if we are root, else for us.
func newHome(t testing.TB, what string) home {
	t.Helper()
	h := home{cred: unprivileged(t)}
	var err error
	if h.dir, err = os.MkdirTemp("", "fencelock-"+what+"-"); err != nil {
		t.Fatal(err)
	}
	if h.cred != nil {
		if err := os.Chown(h.dir, int(h.cred.Uid), int(h.cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	h.startWatcher(t)
	return h
}

func (h *home) startWatcher(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"ps", "pgrep", "ipcrm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing; on Debian: apt-get install procps util-linux", tool)
		}
	}
	cmd := h.command("sh", "-c", watchScript, "sh", h.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot work in %s as another user (is TMPDIR open to all?): %v", h.dir, err)
	}
	h.watch = watcher{in, cmd}
}

// A watcher is closed when its work is to be done.
type watcher struct {
	io.Closer
	cmd *exec.Cmd
}

// Close lets the watcher remove the directory and waits for it.
func (w watcher) Close() error {
	if err := w.Closer.Close(); err != nil {
		return err
	}
	return w.cmd.Wait()
}

// unprivileged returns the user to run servers as, nil if we are not root.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is no user postgres to run it as; on Debian: apt-get install postgresql: %v", err)
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		t.Fatalf("user postgres has the ids %q and %q", u.Uid, u.Gid)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// command prepares a program in the home, as its user, in a session of its own: an
// interrupt typed at the terminal is for the tests, which then clean up.
func (h home) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = h.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + h.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.cred}
	return cmd
}

// run starts a server that writes to the home's log. The channel is closed when it
// has ended.
func (h home) run(t testing.TB, cmd *exec.Cmd) chan struct{} {
	t.Helper()
	log, err := os.OpenFile(h.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { // ends with the server
		defer close(gone)
		_ = cmd.Wait() // tests end it in all kinds of ways
	}()
	return gone
}

// Dir returns the server's directory, which also has its Unix socket.
func (h home) Dir() string { return h.dir }

func (h home) logFile() string { return filepath.Join(h.dir, "log") }
func (h home) log() string     { return tail(h.logFile()) }

// remove ends what still runs in the home and deletes it. A test that failed gets
// the end of the server's log.
func (h home) remove(t testing.TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("the end of the log of %s:\n%s", h.dir, h.log())
	}
	if err := h.watch.Close(); err != nil {
		t.Errorf("cannot remove %s: %v", h.dir, err)
	}
	if err := os.RemoveAll(h.dir); err != nil {
		t.Error(err)
	}
}

// template is a new cluster, made once: initdb takes ten times as long as a copy.
// It lasts as long as the test binary; its watcher removes it then.
var template struct {
	sync.Mutex // guards home, done
	home
	done bool
}

// copyTemplate makes a cluster in data.
func (h home) copyTemplate(t testing.TB, data string) {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if !template.done {
		template.home = newHome(t, "template")
		template.initdb(t, filepath.Join(template.dir, "new"))
		template.done = true
	}
	h.must(t, h.command("cp", "-Rp", filepath.Join(template.dir, "new"), data))
}

// initdb makes a cluster with a system identifier of its own.
func (h home) initdb(t testing.TB, data string) {
	t.Helper()
	h.must(t, h.command(pgProgram(t, "initdb"), "-D", data, "-U", "postgres", "--auth=trust",
		"--locale=C", "--encoding=UTF8", "--no-sync", "--wal-segsize=1"))
}

// must runs a command to its end.
func (h home) must(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}
