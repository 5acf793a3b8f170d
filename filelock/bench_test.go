package filelock_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/filelock"
)

// BenchmarkAcquireRelease measures the system calls of an uncontended lock: in memory, where
// syncing a token costs nothing.
func BenchmarkAcquireRelease(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "filelock")
	if err != nil {
		b.Skip("no file system in memory: ", err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	e := filelock.New(dir, &filelock.Config{Poll: true})
	b.ReportAllocs()
	for b.Loop() {
		release(b, e, hold(b, e, "a"))
	}
}
