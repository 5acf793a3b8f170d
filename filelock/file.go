package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

// fileSystem is statFS; tests replace it.
var fileSystem = statFS

// syncDir makes the entries of a directory survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// makeDirs creates a directory and its parents, and makes it survive a power
// cut when it is new.
func makeDirs(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// writeNew creates or replaces a whole file at once: it is there with its
// content, or as it was before, whatever happens. The caller has the gate; what
// a crash leaves half made is removed with half made tickets.
func writeNew(path string, content []byte) (err error) {
	temp := filepath.Join(filepath.Dir(path), "new."+filepath.Base(path))
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// numberWidth is the fixed width of a stored number, so that it can be
// overwritten in place without ever truncating the file.
const numberWidth = 20

func formatNumber(n int64) []byte { return fmt.Appendf(nil, "%0*d", numberWidth, n) }

// parseNumber is the inverse of formatNumber; ok is false for anything else.
func parseNumber(b []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && len(b) == numberWidth && n >= 0
}

// readNumber returns the number kept in a file, 0 if there is no such file.
func readNumber(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, ok := parseNumber(b)
	if !ok {
		return 0, fmt.Errorf("%w: %q is damaged: write %d digits into it, a number greater than any it held (date +%%s%%6N, padded with zeros, will do)", driver.ErrUnavailable, path, numberWidth)
	}
	return n, nil
}

// writeNumber stores a number; it is in the file, but durable only once the
// returned file, which is nil for one already durable, has been synced.
func writeNumber(path string, n int64) (*os.File, error) {
	content := formatNumber(n)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, writeNew(path, content)
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// settle makes numbers durable and closes their files.
func settle(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Sync(), f.Close())
		}
	}
	return errors.Join(errs...)
}

// same reports whether path still leads to the open file f.
func same(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, now)
}
