package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// openFile opens a file of the name that anybody could have put there: only a
// regular one, of an owner we trust, with one name, is used. With os.O_CREATE it
// makes the file if there is none.
func (g *nameLock) openFile(base string, flag int) (*os.File, error) {
	f, err := g.root.OpenFile(base, flag|nonblock, g.engine.perm.file&0o600)
	if err != nil {
		if isLink(g.path(base)) {
			err = fmt.Errorf("%w: %q is a symbolic link; remove it", driver.ErrConfig, g.path(base))
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || links(info) > 1) {
		err = fmt.Errorf("%w: %q is not a file of ours alone; remove it", driver.ErrConfig, g.path(base))
	}
	if err == nil {
		err = g.engine.perm.owned(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if flag&os.O_CREATE != 0 && info.Mode().Perm() != g.engine.perm.file {
		g.engine.perm.apply(f)
	}
	return f, nil
}

// createFile makes a file that was not there.
func (g *nameLock) createFile(base string) (*os.File, error) {
	f, err := g.root.OpenFile(base, os.O_RDWR|os.O_CREATE|os.O_EXCL, g.engine.perm.file&0o600)
	if err == nil {
		g.engine.perm.apply(f)
	}
	return f, err
}

// writeNew creates or replaces a whole file at once: it is there with its
// content, or as it was before, whatever happens. What a crash leaves half made
// is removed with half made tickets.
func (g *nameLock) writeNew(base string, content []byte) (err error) {
	temp := "new." + base
	_ = g.root.Remove(temp)
	defer func() {
		if err != nil {
			_ = g.root.Remove(temp)
		}
	}()
	f, err := g.createFile(temp)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = g.root.Rename(temp, base); err != nil {
		return err
	}
	return g.f.Sync()
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

// errDamaged says that a file does not hold what it must.
var errDamaged = errors.New("is damaged")

// readNumber returns the number kept in a file; ok is false if there is no such
// file.
func (g *nameLock) readNumber(base string) (n int64, ok bool, err error) {
	f, err := g.openFile(base, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 2*numberWidth))
	if err != nil {
		return 0, false, err
	}
	if n, ok = parseNumber(b); !ok {
		return 0, false, fmt.Errorf("%w: %q %w: write %d digits into it, a number greater than any it held (date +%%s%%6N, padded with zeros, will do)", driver.ErrUnavailable, g.path(base), errDamaged, numberWidth)
	}
	return n, true, nil
}

// writeNumber stores a number; it is in the file, but durable only once the
// returned file, which is nil for one already durable, has been synced.
func (g *nameLock) writeNumber(base string, n int64) (*os.File, error) {
	content := formatNumber(n)
	f, err := g.openFile(base, os.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, g.writeNew(base, content)
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

// vanished reports whether path certainly does not lead to the open file f any
// more. That it cannot be looked at, because of a directory that was closed to
// us for a moment, says nothing.
func vanished(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(mine, now), err
}

// isGone is vanished for those who look again later.
func isGone(f *os.File, path string) bool {
	gone, err := vanished(f, path)
	return gone && err == nil
}

// isLink reports whether path is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}
