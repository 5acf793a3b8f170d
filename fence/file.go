package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ReplaceFile replaces the file at path by one with data and the permissions perm, all
// at once, unless the token of ctx is stale: then it is a *[StaleError], whose resource
// is path. The directory must exist. A symbolic link is replaced itself.
//
// The floor stands beside the file, in path.fence, which must not be deleted; so a path
// that ends in .fence is an error. Its owner gives it perm as well. Its kernel lock (flock)
// keeps writers apart for as long as the check and the rename take; a wait for it ends with
// ctx, and under a context that has ended nothing is written. All writers must be on one
// host. It is ErrUnsupported of package errors where there is no flock.
//
// A crash at any point leaves the old file or the new one, whole, and never the new one
// with the old floor: first the data is written and synced beside the file, then the
// floor is raised and synced, then the data is renamed and the directory is synced. What a
// crash leaves beside the file, .NAME.NUMBER, can be removed. An error after the check
// leaves the floor raised, which is as if a holder had written nothing; if the last sync
// fails, the new file is there, and may be the old one again after a power cut.
func ReplaceFile(ctx context.Context, path string, data []byte, perm os.FileMode) error {
	f, err := From(ctx)
	if err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return fmt.Errorf("fence: replace %s: %w", path, err)
	}
	if base := filepath.Base(path); path == "" || os.IsPathSeparator(path[len(path)-1]) || base == "." || base == ".." {
		return fmt.Errorf("fence: replace %q: the path names no file", path)
	}
	if strings.EqualFold(filepath.Ext(path), floorExt) {
		return fmt.Errorf("fence: replace %s: a name that ends in %s is that of a floor", path, floorExt)
	}
	next, err := writeBeside(path, data, perm)
	if err != nil {
		return fmt.Errorf("fence: replace %s: %w", path, err)
	}
	floor, err := f.replace(ctx, path, next, perm)
	if err != nil {
		_ = os.Remove(next) // it is still there, unless the last sync failed
	}
	if errors.Is(err, ErrStale) {
		return f.Refuse(ctx, path, floor)
	}
	return err
}

// floorExt is what the name of a floor has more than that of its file.
const floorExt = ".fence"

// ended says that ctx has ended, and why.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// writeBeside writes data to a new file beside path, and returns its name.
func writeBeside(path string, data []byte, perm os.FileMode) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(perm))
	if err == nil {
		err = syncFile(file)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// replace renames next to path, under the lock of the floor. It returns ErrStale with the
// floor that says so.
func (f Fence) replace(ctx context.Context, path, next string, perm os.FileMode) (floor int64, err error) {
	file, err := os.OpenFile(path+floorExt, os.O_RDWR|os.O_CREATE, perm|0o600)
	if err != nil {
		return 0, fmt.Errorf("fence: floor of %s: %w", path, err)
	}
	defer file.Close() // and with it the lock
	if err := lockFile(ctx, file); err != nil {
		return 0, fmt.Errorf("fence: lock %s: %w", file.Name(), err)
	}
	floor, err = readFloor(file)
	if err != nil {
		return 0, fmt.Errorf("fence: floor of %s: %w", path, err)
	}
	if stale(f, floor) {
		return floor, ErrStale
	}
	// Whoever may write the file needs its floor, whatever the umask says. Only the owner can.
	_ = file.Chmod(perm.Perm() | 0o600)
	if err := writeFloor(file, raise(f, floor)); err != nil {
		return 0, fmt.Errorf("fence: floor of %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return 0, fmt.Errorf("fence: replace %s: %w", path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return 0, fmt.Errorf("fence: replace %s: %w", path, err)
	}
	return floor, nil
}

// The rule of every guard in Go; a test changes them to see that it would notice.
var (
	stale = func(f Fence, floor int64) bool { return f.Token < floor }
	raise = func(f Fence, floor int64) int64 { return max(f.Floor, floor) }
)

// lockFile waits for the kernel's lock of a file, or for the end of ctx. It asks again
// and again, since a wait in the kernel cannot be ended.
func lockFile(ctx context.Context, file *os.File) error {
	for {
		if err := ended(ctx); err != nil {
			return err
		}
		switch got, err := tryLockFile(file); {
		case got || err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// readFloor reads a floor, which is 0 in a file that was just made.
func readFloor(file *os.File) (int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 64))
	if err != nil || len(text) == 0 {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSuffix(string(text), "\n"), 10, 64)
}

// writeFloor overwrites the floor, of always the same width, so that a crash cannot
// leave a shorter file, and syncs it. One that stands is written too: whoever wrote it may
// have ended before it was synced, or failed to, and what failed once is synced no more.
func writeFloor(file *os.File, floor int64) error {
	if _, err := file.WriteAt(fmt.Appendf(nil, "%019d\n", floor), 0); err != nil {
		return err
	}
	if err := syncFile(file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file.Name())) // the file may be new
}

// syncFile makes what a file has last; a test lets it fail.
var syncFile = (*os.File).Sync

// syncDir makes the names in a directory last.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
