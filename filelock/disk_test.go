//go:build linux || darwin

package filelock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// fill makes every write of this process fail, as a full disk does.
func fill(dir string) string {
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{}); err != nil {
		panic(err)
	}
	return dir
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "used"))
	full := proc.Start(t, "full", dir)
	for _, name := range []string{"used", "new"} {
		for _, wait := range []bool{false, true} {
			req := request(name)
			req.Wait, req.MinHold = wait, 1
			_, err := full.Acquire(context.Background(), req)
			if !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, dir, "free some space") {
				t.Errorf("%q, wait %v: %v", name, wait, err)
			}
			verdict.Is(t, "Files: the disk is full", verdict.Refused, verdict.OfError(err))
		}
		idle(t, e, dir)
	}
	release(t, e, hold(t, e, "used"))
	release(t, e, hold(t, e, "new"))
}

func TestFullDiskKeepsTheLimit(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	resize(t, e, 3)
	err := proc.Start(t, "full", dir).Resize(context.Background(), "a", 4)
	if !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, dir, "free some space") {
		t.Errorf("got %v", err)
	}
	if n := limitOf(t, e); n != 3 {
		t.Errorf("the limit is %d, not 3", n)
	}
	idle(t, e, dir)
}

func TestFullDiskWhileWaiting(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	l := hold(t, e, "a")
	req := request("a")
	req.Wait = true
	_, err := proc.Start(t, "full", dir).Acquire(context.Background(), req)
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("joining the queue: %v", err)
	}
	release(t, e, l)
	idle(t, e, dir)
}

func TestDirectoryBelowAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(tempDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := filelock.New(filepath.Join(file, "locks"), nil).Acquire(context.Background(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, file, "--url") {
		t.Errorf("got %v", err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	p := startAsUser(t, dir)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "a"))
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	_, err := p.Acquire(context.Background(), request("new"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, dir, "--url") {
		t.Errorf("got %v", err)
	}
}

func TestDirectoryThatIsClosedForAWhileLosesNoLock(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the directory of the locks is closed to its user for a while", verdict.Safe)
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	locks := filepath.Join(dir, "locks")
	if err := os.Mkdir(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(locks, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	p := startAsUser(t, locks)
	lost := make(chan error, 1)
	req := request("a")
	req.OnLost = func(err error) { lost <- err }
	l := leaseOf("a", acquire(t, p, req))
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	errs := p.Renew(t.Context(), []driver.Lease{l})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if errs[0] != nil {
		t.Errorf("while the directory was closed: %v", errs[0])
	}
	release(t, p, l)
	select {
	case err := <-lost:
		t.Errorf("lost: %v", err)
	default:
	}
}

// startAsUser runs an engine without the powers of root, to whom modes mean
// nothing. The binary must be where that user can read it.
func startAsUser(t *testing.T, dir string) *proc.Process {
	t.Helper()
	return startAsUserOf(t, "user", dir)
}

// startAsUserOf is startAsUser for a kind of engine.
func startAsUserOf(t *testing.T, kind, dir string) *proc.Process {
	t.Helper()
	return startAs(t, 65534, kind, dir)
}

// startAs is startAsUserOf with any user, whose group is 65534.
func startAs(t *testing.T, uid uint32, kind, dir string) *proc.Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return proc.StartCommand(t, exec.Command(exe), kind, dir)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(tempDir(t), "test")
	syscall.ForkLock.RLock() // a process that starts now would have it open for writing, and nobody could run it
	err = os.WriteFile(bin, b, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bin, filepath.Dir(bin)} {
		if err := os.Chmod(path, 0o755); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 65534}}
	return proc.StartCommand(t, cmd, kind, dir)
}
