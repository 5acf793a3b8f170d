//go:build linux || darwin

package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

// closedTo lists what the group could not use of what everybody sees below dir.
func closedTo(t *testing.T, dir string) (closed []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".new.") || strings.HasPrefix(entry.Name(), "new.") || filepath.Base(filepath.Dir(path)) == ".used" {
			return nil // half made, or never opened
		}
		info, err := entry.Info()
		if want := os.FileMode(0o660); err == nil && info.Mode().Perm()&want != want {
			closed = append(closed, fmt.Sprintf("%s has mode %v", path, info.Mode()))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return closed
}

// Nothing that a group shares is seen before the group can use it, and a process that dies
// while it makes something leaves nothing that keeps the others out.
func TestNothingIsSeenHalfMade(t *testing.T) {
	t.Parallel()
	cfg := &filelock.Config{Group: strconv.Itoa(os.Getgid())}
	for dies := 1; ; dies++ {
		dir := filepath.Join(tempDir(t), "locks")
		steps, done := 0, make(chan struct{})
		go func() { // ends with the release, or where the process would die
			defer close(done)
			e := filelock.New(dir, cfg)
			e.SetPass(func(what string) {
				if what != "made" {
					return
				}
				for _, c := range closedTo(t, filepath.Dir(dir)) {
					t.Errorf("seen half made: %s", c)
				}
				if steps++; steps == dies {
					runtime.Goexit()
				}
			})
			release(t, e, hold(t, e, "a"))
		}()
		<-done
		e := filelock.New(dir, cfg)
		release(t, e, acquireSoon(t, e, "a"))
		if closed := closedTo(t, dir); closed != nil {
			t.Errorf("after a death at step %d: %q", dies, closed)
		}
		if steps < dies {
			if steps < 4 { // the directory, that of the name, the marks, the lock file
				t.Errorf("%d things were made", steps)
			}
			return
		}
	}
}

// acquireSoon is hold for a name whose gate a goroutine that ended may keep for a moment.
func acquireSoon(t *testing.T, e driver.Engine, name string) driver.Lease {
	t.Helper()
	return leaseOf(name, acquire(t, e, request(name)))
}

// Without the group, nothing is made in its directory: the group could not use it.
func TestASharedDirectoryNeedsItsGroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "locks")
	shared := filelock.New(dir, &filelock.Config{Group: strconv.Itoa(os.Getgid())})
	release(t, shared, hold(t, shared, "a"))
	_, err := filelock.New(dir, nil).Acquire(t.Context(), request("b"))
	if !errors.Is(err, driver.ErrConfig) || !oneLineWith(err, dir, "?group=") {
		t.Errorf("got %v, want ErrConfig that names the group", err)
	}
	release(t, shared, hold(t, shared, "b"))
}

// members starts processes of two users of a group.
func members(t *testing.T, dir string) (one, two *proc.Process) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of two users")
	}
	if err := os.Chmod(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	return startAs(t, 65533, "group 65534", dir), startAs(t, 65534, "group 65534", dir)
}

// Two users ask for the same new names at the same time, while processes of both die.
func TestTwoUsersMakeTheSameNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "locks")
	one, two := members(t, dir)
	names := 60
	if os.Getenv("FENCELOCK_SLOW") != "" {
		names = 500
	}
	for i := range names {
		name := fmt.Sprint("new-", i)
		victims := []*proc.Process{}
		if i%20 == 0 {
			victims = append(victims, startAs(t, 65533, "group 65534", dir), startAs(t, 65534, "group 65534", dir))
		}
		var all sync.WaitGroup
		for _, v := range victims {
			all.Go(func() { _, _ = v.Acquire(context.Background(), request(name)) }) // ends with the kill
		}
		for _, p := range []*proc.Process{one, two} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				req := request(name)
				req.Wait = true
				g, err := p.Acquire(ctx, req)
				if err == nil {
					err = p.Release(ctx, leaseOf(name, g))
				}
				if err != nil {
					t.Errorf("%q: %v", name, err)
				}
			})
		}
		for j, v := range victims {
			time.Sleep(time.Duration((i*7+j*13)%10) * 100 * time.Microsecond)
			v.Kill(t)
		}
		all.Wait()
	}
	if closed := closedTo(t, dir); closed != nil {
		t.Errorf("left: %q", closed)
	}
}

// A break cannot kill the frozen process of another user, and says so.
func TestBreakOfAnotherUsersFrozenHolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "locks")
	holder, breaker := members(t, dir)
	if _, err := holder.Acquire(context.Background(), request("a")); err != nil {
		t.Fatal(err)
	}
	holder.Freeze(t)
	defer holder.Thaw(t)
	_, err := breaker.Break(context.Background(), "a", "test")
	if !errors.Is(err, driver.ErrUnavailable) || !oneLineWith(err, "another user's process", "root") || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v, want ErrUnavailable that says who can end the holder", err)
	}
}

// maskAll sets a umask that removes all rights, for this process.
func maskAll(cfg *filelock.Config) *filelock.Config {
	syscall.Umask(0o777)
	return cfg
}

// What is created under a umask that removes all rights can be used afterwards, by processes
// without the powers of root.
func TestUmaskThatRemovesAllRights(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mask", "mask 65534"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			top := tempDir(t)
			must(t, os.Chmod(top, 0o777))
			dir := filepath.Join(top, "a", "b", "locks")
			one := startAs(t, 65533, kind, dir)
			other := startAs(t, 65533, kind, dir)
			l := hold(t, one, "a")
			granted := queueUp(t, t.Context(), other, "a")
			bells, _ := filepath.Glob(filepath.Join(dir, "a", "bell.*"))
			if len(bells) != 1 && runtime.GOOS == "linux" {
				t.Errorf("%d FIFOs of a waiter", len(bells))
			}
			if all, err := one.List(t.Context(), driver.Query{}); err != nil || len(all) != 1 || len(all[0].Holders) != 1 || len(all[0].Waiters) != 1 {
				t.Errorf("List: %+v, %v", all, err)
			}
			release(t, one, l)
			release(t, other, leaseOf("a", await(t, granted, "the lock")))
			if err := one.Resize(t.Context(), "a", 3); err != nil {
				t.Error(err)
			}
			if closed := closedToOwner(t, top); closed != nil {
				t.Errorf("left: %q", closed)
			}
		})
	}
}

// closedToOwner lists what its owner could not use below dir.
func closedToOwner(t *testing.T, dir string) (closed []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o600 != 0o600 {
			closed = append(closed, fmt.Sprintf("%s has mode %v", path, info.Mode()))
		}
		return nil
	}))
	return closed
}
