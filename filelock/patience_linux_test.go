package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// keepers keep something of a name, so that a list waits for it, or looks for its process.
var keepers = map[string]func(dir string) (*os.File, error){
	"directory lock": func(dir string) (*os.File, error) { return flocked(dir, os.O_RDONLY) },
	"foreign lock":   func(dir string) (*os.File, error) { return flocked(filepath.Join(dir, "lock"), os.O_RDWR) },
	"file lease": func(dir string) (*os.File, error) {
		f, err := os.OpenFile(filepath.Join(dir, "name"), os.O_RDWR, 0)
		if err == nil {
			_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		}
		return f, err
	},
}

func flocked(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	return f, err
}

// TestManyKeptNames: the owner of the directory keeps something of each of many names. A list waits
// for all of them together as long as for a few, and ends with its context.
func TestManyKeptNames(t *testing.T) {
	t.Parallel()
	const names = 40
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			e := filelock.New(dir, nil)
			for i := range names {
				name := fmt.Sprint("n", i)
				release(t, e, hold(t, e, name))
				f, err := keep(filepath.Join(dir, name))
				if err != nil {
					t.Skipf("this file system cannot do that: %v", err)
				}
				defer f.Close()
			}
			client := filelock.New(dir, nil)
			client.SetListPatience(1)
			start := time.Now()
			list, err := client.List(t.Context(), driver.Query{})
			if took := time.Since(start); took > names*time.Second/2 {
				t.Errorf("a list took %v", took)
			}
			found := 0
			for _, s := range list {
				if len(s.Holders) > 0 && s.Holders[0].PID != 0 {
					found++
				}
			}
			if found > 1 {
				t.Errorf("a list looked for the processes of %d foreign holders, want 1", found)
			}
			if unread := errors.Is(err, driver.ErrUnavailable); len(list) != names && !unread {
				t.Errorf("%d names, %v, want %d or ErrUnavailable", len(list), err, names)
			}
			for _, step := range []string{"file", "opened"} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				steps := 0
				client.SetPass(func(what string) {
					if what == step {
						steps++
						cancel()
					}
				})
				if _, err := client.List(ctx, driver.Query{}); steps > 2 || steps > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled at %q: %v after %d more", step, err, steps-1)
				}
			}
		})
	}
}

// TestReleaseBesideLeasedTickets: a release looks for the waiter that it wakes, and waits for the
// tickets of another user no longer than for one.
func TestReleaseBesideLeasedTickets(t *testing.T) {
	t.Parallel()
	const tickets = 30
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	lease := hold(t, e, "a")
	for i := range tickets {
		path := filepath.Join(dir, "a", fmt.Sprintf("09%018d.x.w.z%d", i, i))
		must(t, os.WriteFile(path, []byte("{}"), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skipf("this file system has no leases: %v", err)
		}
	}
	start := time.Now()
	release(t, e, lease)
	if took := time.Since(start); took > tickets*time.Second/2 {
		t.Errorf("a release took %v", took)
	}
}
