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

// ReplaceFile atomically replaces the file at path by one with data and the permissions perm. If
// the token of ctx is stale, it returns a *[StaleError] whose resource is path. The directory must
// exist. A symbolic link is itself replaced.
//
// The floor, the lowest token that is still valid, is stored in path.fence with the same
// permissions. Do not delete that file. A path that itself ends in .fence is an error. Writers
// exclude each other by the kernel lock (flock) of path.fence during the check and the rename. A
// wait for it ends with ctx. If ctx has ended, nothing is written. All writers must be on one host.
// Without flock on the system, the error is errors.ErrUnsupported.
//
// A crash leaves the old file or the new one, complete, and never the new file with the old floor.
// ReplaceFile writes and syncs the data to a temporary file, then raises and syncs the floor, then
// renames the temporary file and syncs the directory. A temporary file that a crash leaves,
// .NAME.NUMBER, can be deleted. After an error that follows the check, the floor stays raised, as
// if the holder had written nothing. If only the last sync fails, the new file is in place, but a
// power failure may restore the old one.
func ReplaceFile(ctx context.Context, path string, data []byte, perm os.FileMode) error {
	f, err := From(ctx)
	if err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return fmt.Errorf("fence: replace %s: %w", path, err)
	}
	if base := filepath.Base(path); path == "" || os.IsPathSeparator(path[len(path)-1]) || base == "." || base == ".." {
		return fmt.Errorf("fence: replace %q: the path does not name a file", path)
	}
	if strings.EqualFold(filepath.Ext(path), floorExt) {
		return fmt.Errorf("fence: replace %s: the suffix %s is reserved for floors: choose another name", path, floorExt)
	}
	next, err := writeBeside(path, data, perm)
	if err != nil {
		return fmt.Errorf("fence: replace %s: %w", path, err)
	}
	floor, err := f.replace(ctx, path, next, perm)
	if err != nil {
		_ = os.Remove(next) // it still exists, unless the last sync failed
	}
	if errors.Is(err, ErrStale) {
		return f.Refuse(ctx, path, floor)
	}
	return err
}

// floorExt is the suffix of the file with the floor.
const floorExt = ".fence"

// ended returns an error if ctx has ended, with its cause.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// writeBeside writes data to a new file in the directory of path and returns its name.
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

// replace renames next to path under the lock of the floor. If the token is stale, it returns
// ErrStale and the floor.
func (f Fence) replace(ctx context.Context, path, next string, perm os.FileMode) (floor int64, err error) {
	file, err := os.OpenFile(path+floorExt, os.O_RDWR|os.O_CREATE, perm|0o600)
	if err != nil {
		return 0, fmt.Errorf("fence: floor of %s: %w", path, err)
	}
	defer file.Close() // also releases the lock
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
	// Everyone who may write the file needs its floor, whatever the umask is. Only the owner can do
	// this, so an error is ignored.
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

// The rule of all guards in Go. A test changes it to check that it would be detected.
var (
	stale = func(f Fence, floor int64) bool { return f.Token < floor }
	raise = func(f Fence, floor int64) int64 { return max(f.Floor, floor) }
)

// lockFile waits for the kernel lock of a file, or for the end of ctx. It polls, because a blocking
// flock cannot be cancelled.
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

// readFloor reads a floor. It is 0 in a new file.
func readFloor(file *os.File) (int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 64))
	if err != nil || len(text) == 0 {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSuffix(string(text), "\n"), 10, 64)
}

// writeFloor overwrites and syncs the floor. Its width is constant, so that a crash cannot leave a
// shorter file. It also writes a floor that has not changed: the process that wrote it may have
// ended before its sync, or the sync may have failed, and a later sync would not write the same
// data again.
func writeFloor(file *os.File, floor int64) error {
	if _, err := file.WriteAt(fmt.Appendf(nil, "%019d\n", floor), 0); err != nil {
		return err
	}
	if err := syncFile(file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file.Name())) // the file may be new
}

// syncFile makes the contents of a file durable. A test replaces it.
var syncFile = (*os.File).Sync

// syncDir makes the names in a directory durable.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
