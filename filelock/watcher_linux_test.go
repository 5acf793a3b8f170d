package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fencelock/fencelock/filelock"
)

// A directory that is moved, by itself or with the one above it, is noticed, and the one in
// its place is watched.
func TestDirectoryMoved(t *testing.T) {
	t.Parallel()
	for _, itself := range []bool{true, false} {
		top := filepath.Join(tempDir(t), "locks")
		dir := filepath.Join(top, "a")
		moved := top
		if itself {
			moved = dir
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.MkdirAll(dir, 0o700))
		told, heard := filelock.TellsMoves(top, dir, itself, patience, func() {
			must(os.Rename(moved, moved+".old"))
			must(os.MkdirAll(dir, 0o700))
		}, func() { must(os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)) })
		if !told || !heard {
			t.Errorf("itself %v: told of the move: %v; heard of the new directory: %v", itself, told, heard)
		}
	}
}
