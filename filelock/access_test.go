//go:build linux || darwin

package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// TestListBesideAStuckGate stops a process in the gate of one of three names.
func TestListBesideAStuckGate(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	for _, name := range []string{"a", "b", "c"} {
		hold(t, e, name)
	}
	stuck := proc.Start(t, "stop inside", dir)
	go func() { _, _ = stuck.Acquire(t.Context(), request("b")) }() // ends with the test; its process stops first
	awaitStop(t, stuck.PID())
	list, err := e.List(t.Context(), driver.Query{})
	if err != nil || len(list) != 3 {
		t.Fatalf("List: %+v, %v", list, err)
	}
	for _, s := range list {
		if troubled := s.Trouble != nil; troubled != (s.Name == "b") || len(s.Holders) != 1 {
			t.Errorf("List: %+v", s)
		}
	}
	if err := list[1].Trouble; !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, strconv.Itoa(stuck.PID())) {
		t.Errorf("the trouble is %v", err)
	}
}

func TestListNamesWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o777); err != nil { // for another user than root
		t.Fatal(err)
	}
	locks := filepath.Join(dir, "locks")
	p := startAsUser(t, locks)
	hold(t, p, "mine")
	hold(t, p, "theirs")
	if err := os.Chmod(filepath.Join(locks, "theirs"), 0); err != nil {
		t.Fatal(err)
	}
	list, err := p.List(t.Context(), driver.Query{})
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, "theirs") {
		t.Errorf("List: %v", err)
	}
	if len(list) != 1 || list[0].Name != "mine" {
		t.Errorf("List: %+v", list)
	}
}

// TestLinksAreNotFollowed puts links to a file of the user where the engine writes.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"lock", "token", "name", "not-before", "limit", "new.token", "new.name", "new.limit"} {
		for kind, link := range map[string]func(old, new string) error{"symbolic": os.Symlink, "hard": os.Link} {
			dir := tempDir(t)
			victim := filepath.Join(dir, "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			locks := filepath.Join(dir, "locks")
			if err := os.MkdirAll(filepath.Join(locks, "a"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := link(victim, filepath.Join(locks, "a", base)); err != nil {
				t.Fatal(err)
			}
			e := filelock.New(locks, nil)
			req := request("a")
			req.MinHold = time.Hour
			_, err := e.Acquire(t.Context(), req)
			if err != nil && !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%s link at %s: %v", kind, base, err)
			}
			if err := e.Resize(t.Context(), "a", 2); err != nil && !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%s link at %s: resize: %v", kind, base, err)
			}
			if b, _ := os.ReadFile(victim); string(b) != "precious" {
				t.Errorf("through a %s link at %s: %q", kind, base, b)
			}
		}
	}
}

func TestDirectoryThatIsALink(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	elsewhere := tempDir(t)
	if err := os.Symlink(elsewhere, filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	_, err := filelock.New(dir, nil).Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, "symbolic link") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
		t.Errorf("made there: %v", left)
	}
}

// TestStrangersDirectoryIsRefused needs root, to be two users.
func TestStrangersDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Log("not root")
		return
	}
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "a"))
	if err := os.Chown(filepath.Join(dir, "a"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err := e.Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, "65534", "group") {
		t.Errorf("got %v", err)
	}
	verdict.Is(t, "Files: the lock's directory belongs to another user", verdict.Refused, verdict.OfError(err))
}

// TestGroupSharesADirectory needs root, to be two users of a group.
func TestGroupSharesADirectory(t *testing.T) {
	old := syscall.Umask(0o077) // of the whole process: not beside other tests
	defer syscall.Umask(old)
	group := strconv.Itoa(os.Getgid())
	if os.Getuid() == 0 {
		group = "65534" // of the other user
	}
	dir := filepath.Join(tempDir(t), "locks")
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	e := filelock.New(dir, &filelock.Config{Group: group})
	l := hold(t, e, "a")
	other := startAsUserOf(t, "group "+group, dir)
	if _, err := other.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("another user of the group: %v", err)
	}
	granted := queueUp(t, t.Context(), other, "a")
	release(t, e, l)
	g := await(t, granted, "the lock of another user")
	release(t, other, leaseOf("a", g))
	release(t, other, hold(t, other, "b"))
	release(t, e, hold(t, e, "b"))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := filelock.New(dir, &filelock.Config{Group: group}).Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, "chmod 2770") {
		t.Errorf("in a directory that is not shared: %v", err)
	}
}

func TestInspectSaysWhoMayHarm(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	for mode, want := range map[os.FileMode]driver.Severity{0o700: driver.Good, 0o777: driver.Warning} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		list, err := e.Inspect(t.Context(), time.Minute)
		if err != nil || len(list) != 3 || list[2].Severity != want || !strings.Contains(list[2].Observed, dir) {
			t.Errorf("mode %o: %+v, %v", mode, list, err)
		}
		for _, f := range list[:2] {
			if f.Severity != driver.Good {
				t.Errorf("mode %o: %+v", mode, f)
			}
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, "doctor") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestInspectWithoutRights: a directory that the user may not write to is told.
func TestInspectWithoutRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Log("root may write anywhere")
		return
	}
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	list, err := filelock.New(dir, nil).Inspect(t.Context(), time.Minute)
	if err != nil || len(list) != 3 || list[0].Severity != driver.Broken || !strings.Contains(list[0].Observed, "permission denied") {
		t.Errorf("got %+v, %v", list, err)
	}
}
