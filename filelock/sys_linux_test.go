package filelock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/filelock"
)

// TestOwnersOnAnOverlay needs root, to mount one whose layers are on two file systems: there, as
// on btrfs, locks have another file system's number than files.
func TestOwnersOnAnOverlay(t *testing.T) {
	t.Parallel()
	lower := t.TempDir()
	upper, err := os.MkdirTemp("/dev/shm", "overlay")
	if os.Getuid() != 0 || err != nil {
		t.Log("not root, or no second file system:", err)
		return
	}
	t.Cleanup(func() { os.RemoveAll(upper) })
	done := make(chan error, 1)
	go func() { done <- ownersOnOverlay(lower, upper) }() // ends with its thread, which has mounts of its own
	if err := await(t, done, "the owners"); err != nil {
		t.Error(err)
	}
}

func ownersOnOverlay(lower, upper string) error {
	runtime.LockOSThread()
	place, upperdir, work := filepath.Join(upper, "place"), filepath.Join(upper, "upper"), filepath.Join(upper, "work")
	for _, dir := range []string{place, upperdir, work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if unix.Unshare(unix.CLONE_NEWNS) != nil || unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil ||
		unix.Mount("overlay", place, "overlay", 0, "lowerdir="+lower+",upperdir="+upperdir+",workdir="+work) != nil {
		return nil // a container that may not mount
	}
	f, err := os.Create(filepath.Join(place, "lock"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if pids, known := filelock.FlockOwners(f); !known || !slices.Contains(pids, os.Getpid()) {
		return fmt.Errorf("owners %v, known %v; want pid %d", pids, known, os.Getpid())
	}
	return nil
}
