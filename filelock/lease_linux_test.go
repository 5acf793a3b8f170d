package filelock_test

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// TestFileLease: a file server that has a lease (fcntl) on a lock file, and returns it when the kernel
// asks for it, fails no acquisition. One that keeps it does.
func TestFileLease(t *testing.T) { // not parallel: it handles SIGIO
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	release(t, e, hold(t, e, "a"))
	server, err := os.OpenFile(filepath.Join(dir, "a", "lock"), os.O_RDONLY, 0)
	must(t, err)
	defer server.Close()
	wanted := make(chan os.Signal, 1)
	signal.Notify(wanted, unix.SIGIO)
	defer signal.Stop(wanted)
	lease := func(kind int) {
		if _, err := unix.FcntlInt(server.Fd(), unix.F_SETLEASE, kind); err != nil {
			t.Skipf("this file system has no leases: %v", err)
		}
	}
	lease(unix.F_RDLCK)
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a lease that is kept: %v, want ErrUnavailable", err)
	}
	<-wanted
	lease(unix.F_UNLCK)
	lease(unix.F_RDLCK)
	returned := make(chan struct{})
	go func() { // ends when the acquisition opens the file
		defer close(returned)
		<-wanted
		lease(unix.F_UNLCK)
	}()
	release(t, e, hold(t, e, "a"))
	<-returned
}
