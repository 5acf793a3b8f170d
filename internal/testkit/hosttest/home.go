//go:build unix

package hosttest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Home is the directory of a server that does not run as root, and the user it runs as. When this
// test binary ends, for whatever reason, a watcher process ends what runs there and removes the
// directory.
type Home struct {
	Dir string

	cred    *syscall.Credential // nil means as we are
	watcher *exec.Cmd
	watch   io.Closer // the watcher acts when this is closed
}

// A Tenant is a kind of server that runs in a Home.
type Tenant struct {
	Users []string // users to run as if the test runs as root; the first that exists is used; none if root will do
	Stop  string   // a shell script that ends whatever runs in the directory $1
}

// NewHome creates a directory, for the tenant's user if the test runs as root.
func NewHome(t TB, tenant Tenant, what string) Home {
	t.Helper()
	h := Home{cred: tenant.unprivileged(t)}
	var err error
	if h.Dir, err = os.MkdirTemp(DataRoot(), "fencelock-"+what+"-"); err != nil {
		t.Fatal(err)
	}
	if h.cred != nil {
		if err = os.Chown(h.Dir, int(h.cred.Uid), int(h.cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	h.watcher = h.Command("sh", "-c", "read -r _\n"+tenant.Stop+"\nrm -rf \"$1\"\n", "sh", h.Dir) // it reads until its input ends
	if h.watch, err = h.watcher.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err = h.watcher.Start(); err != nil {
		t.Fatalf("cannot work in %s as another user (is it open to all?): %v", h.Dir, err)
	}
	return h
}

// unprivileged returns the user to run servers as, nil if we are not root.
func (tenant Tenant) unprivileged(t TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 || len(tenant.Users) == 0 {
		return nil
	}
	for _, name := range tenant.Users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID != nil || errGID != nil {
			t.Fatalf("user %s has the ids %q and %q", name, u.Uid, u.Gid)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Fatalf("the server does not run as root, and there is no user %s to run it as: install its package", strings.Join(tenant.Users, " or "))
	return nil
}

// Command prepares a program that runs in the home, as its user and in a session of its own, so
// that an interrupt typed at the terminal reaches only the tests, which then clean up.
func (h Home) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = h.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "LC_ALL=C", "TZ=UTC", "HOME=" + h.Dir, "TMPDIR=" + h.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.cred}
	return cmd
}

// Must runs a command and fails the test on an error.
func (h Home) Must(t TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// Run starts a server that writes to the home's log. The channel is closed when it has ended.
func (h Home) Run(t TB, cmd *exec.Cmd) chan struct{} {
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

// Patience bounds every step of a server that should take a moment: a loaded machine takes seconds.
const Patience = time.Minute

// Launch starts a server on a free port. Other programs may take the port first; then start returns
// an error, and Launch tries another one.
func (h Home) Launch(t TB, start func(port int) error) {
	t.Helper()
	var err error
	for range 5 {
		if err = start(FreePort(t)); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// Await waits until a server is ready. It returns an error if the server ends. One that runs and is
// not ready in time fails the test.
func (h Home) Await(t TB, gone <-chan struct{}, ready func() bool) error {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		if ready() {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("the server has ended:\n%s", h.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("the server is not ready after %v:\n%s", Patience, h.Log())
	return nil
}

func (h Home) logFile() string { return filepath.Join(h.Dir, "log") }

// Log returns the end of the server's log, or why it cannot be read.
func (h Home) Log() string {
	b, err := os.ReadFile(h.logFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// Remove ends what still runs in the home and deletes it. If the test has failed, it logs the end
// of the server's log.
func (h Home) Remove(t TB) {
	t.Helper()
	if t.Failed() {
		t.Logf("the end of the log of %s:\n%s", h.Dir, h.Log())
	}
	if err := h.watch.Close(); err != nil {
		t.Errorf("cannot remove %s: %v", h.Dir, err)
	}
	_ = h.watcher.Wait() // how it ended does not matter, what is left does
	if err := os.RemoveAll(h.Dir); err != nil {
		t.Error(err)
	}
}
