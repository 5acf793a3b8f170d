package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// damaged holds "a", lets damage do its work, and returns once the holder knows.
func damaged(t *testing.T, damage func(dir string)) (dir string, e *filelock.Engine, l driver.Lease) {
	t.Helper()
	dir = tempDir(t)
	e = filelock.New(dir, nil)
	lost := make(chan error, 1)
	req := request("a")
	req.OnLost = func(err error) { lost <- err }
	l = leaseOf("a", acquire(t, e, req))
	damage(filepath.Join(dir, "a"))
	if err := await(t, lost, "the loss"); !errors.Is(err, driver.ErrLost) {
		t.Errorf("cause: %v", err)
	}
	if errs := e.Renew(context.Background(), []driver.Lease{l}); !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("renew: %v", errs[0])
	}
	return dir, e, l
}

// stillExcluded fails the test if a second holder gets in before the first one
// has released.
func stillExcluded(t *testing.T, dir string, e *filelock.Engine, l driver.Lease) {
	t.Helper()
	other := filelock.New(dir, nil)
	if _, err := other.Acquire(context.Background(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	if err := e.Release(context.Background(), l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
	if g := acquire(t, other, request("a")); g.Token <= l.Token {
		t.Errorf("token %d after %d", g.Token, l.Token)
	}
}

func TestLockFileRemoved(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the file lock is removed or replaced", verdict.Safe)
	dir, e, l := damaged(t, func(dir string) { os.Remove(filepath.Join(dir, "lock")) })
	stillExcluded(t, dir, e, l)
}

func TestLockFileReplaced(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the file lock is removed or replaced", verdict.Safe)
	dir, e, l := damaged(t, func(dir string) {
		lock := filepath.Join(dir, "lock")
		os.WriteFile(lock+"2", nil, 0o600)
		os.Rename(lock+"2", lock)
	})
	stillExcluded(t, dir, e, l)
}

func TestTicketRemoved(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: the holder's ticket is removed", verdict.Safe)
	dir, e, l := damaged(t, func(dir string) {
		tickets, _ := filepath.Glob(filepath.Join(dir, "*.h.*"))
		for _, f := range tickets {
			os.Remove(f)
		}
	})
	stillExcluded(t, dir, e, l)
}

// A process that goes elsewhere, as daemons do, keeps its locks where they were.
func TestWorkingDirectoryThatChanges(t *testing.T) {
	t.Chdir(tempDir(t))
	e := filelock.New("locks", nil)
	l := hold(t, e, "a")
	t.Chdir(tempDir(t))
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	if errs := e.Renew(t.Context(), []driver.Lease{l}); errs[0] != nil {
		t.Errorf("renew: %v", errs[0])
	}
	release(t, e, l)
}

func TestBreakIsNoticedWithoutFileEvents(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, &filelock.Config{Poll: true})
	lost := make(chan error, 1)
	req := request("a")
	req.OnLost = func(err error) { lost <- err }
	acquire(t, e, req)
	if _, err := filelock.New(dir, nil).Break(t.Context(), "a", "test"); err != nil {
		t.Error(err)
	}
	if err := await(t, lost, "the loss"); !errors.Is(err, driver.ErrLost) {
		t.Errorf("cause: %v", err)
	}
}

func TestDirectoryRemoved(t *testing.T) {
	t.Parallel()
	_, e, l := damaged(t, func(dir string) { os.RemoveAll(dir) })
	if err := e.Release(context.Background(), l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
	next := hold(t, e, "a")
	verdict.Is(t, "Files: the lock's directory is removed", verdict.Guarded, verdict.OfHolders(nil, l.Token, next.Token))
	release(t, e, next)
}

func TestWaitingTicketRemoved(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	l := hold(t, e, "a")
	granted := queueUp(t, t.Context(), e, "a")
	tickets, _ := filepath.Glob(filepath.Join(dir, "a", "*.w.*"))
	for _, f := range tickets {
		os.Remove(f)
	}
	release(t, e, l)
	await(t, granted, "a grant for the waiter without a ticket")
}

func TestDamagedTokenFile(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "a"))
	path := filepath.Join(dir, "a", "token")
	for _, content := range []string{"", "12", strings.Repeat("x", 20), strings.Repeat("0", 21)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := e.Acquire(context.Background(), request("a"))
		if !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, path, "20 digits") {
			t.Errorf("with %q: %v", content, err)
		}
	}
	idle(t, e, dir)
}

// idle fails the test if anything is locked or queued.
func idle(t *testing.T, e *filelock.Engine, dir string) {
	t.Helper()
	if s, err := e.List(context.Background(), driver.Query{}); err != nil || len(s) != 0 {
		t.Errorf("List: %+v, %v", s, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", "*.[wh].*"))
	more, _ := filepath.Glob(filepath.Join(dir, "*", "new.*"))
	temp, _ := filepath.Glob(filepath.Join(dir, "*", "*.new"))
	if left = append(append(left, more...), temp...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPowerCutBetweenTokenAndGrant(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Files: power failure", verdict.Safe)
	dir, kept := tempDir(t), tempDir(t)
	e := filelock.New(dir, nil)
	cut := func(token int64) {
		if err := os.RemoveAll(kept); err != nil {
			t.Error(err)
		}
		if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		after := filelock.New(kept, nil)
		l := hold(t, after, "a")
		if l.Token <= token {
			t.Errorf("after the cut the token is %d, before it was %d", l.Token, token)
		}
		release(t, after, l)
	}
	e.SetHook(cut)
	for range 3 {
		release(t, e, hold(t, e, "a"))
	}
}

// TestPowerCutThatLosesASyncedToken: the disk loses the last token, and the clock is behind it.
func TestPowerCutThatLosesASyncedToken(t *testing.T) {
	t.Parallel()
	dir, kept := tempDir(t), tempDir(t)
	e := filelock.New(dir, nil)
	ahead(t, dir, e)
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	lost, next := hold(t, e, "a"), hold(t, filelock.New(kept, nil), "a")
	verdict.Is(t, "Files: power failure, the disk had not written what it reported as synced, and the clock is set back",
		verdict.Unsafe, verdict.OfHolders(nil, lost.Token, next.Token))
}

func TestMissingTokenFileIsCoveredByTheClock(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	l := hold(t, e, "a")
	release(t, e, l)
	os.Remove(filepath.Join(dir, "a", "token"))
	if next := hold(t, e, "a"); next.Token <= l.Token {
		t.Errorf("token %d after %d", next.Token, l.Token)
	}
}

// TestDirectoryReplacedAsAWhole: with another directory in place of that of all locks, new clients
// use the new one, and the holder in the old one is told that its lock is lost.
func TestDirectoryReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	for _, poll := range []bool{false, true} {
		dir := filepath.Join(tempDir(t), "locks")
		e := filelock.New(dir, &filelock.Config{Poll: poll})
		lost := make(chan error, 1)
		req := request("a")
		req.OnLost = func(err error) { lost <- err }
		l := leaseOf("a", acquire(t, e, req))
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		other := filelock.New(dir, nil)
		next := hold(t, other, "a")
		if err := await(t, lost, "the loss"); !errors.Is(err, driver.ErrLost) {
			t.Errorf("cause: %v", err)
		}
		if errs := e.Renew(t.Context(), []driver.Lease{l}); !errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("renew: %v", errs[0])
		}
		if err := e.Release(t.Context(), l); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("release: %v", err)
		}
		if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside the new holder: %v", err)
		}
		if next.Token <= l.Token {
			t.Errorf("token %d after %d", next.Token, l.Token)
		}
		release(t, other, next)
	}
}
