package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
)

// A folder is a directory with files of this package: that of a name, that of some records, or the
// top directory. Files are opened relative to the open directory, so replacing the directory by a
// link does not redirect them. One goroutine uses it.
type folder struct {
	path string
	perm *perm
	root *os.Root // the directory itself; nil while it is not open
	f    *os.File // the directory, as a file
}

// open opens the directory. The error is fs.ErrNotExist if there is none.
func (d *folder) open() (err error) {
	if d.root, err = os.OpenRoot(d.path); err != nil {
		return err
	}
	d.f, err = d.root.Open(".")
	return err
}

// close closes the directory, if it is open.
func (d *folder) close() {
	d.f.Close()
	if d.root != nil {
		d.root.Close()
	}
	d.f, d.root = nil, nil
}

// pathOf returns the path of a file, for messages and for operations that need a path.
func (d *folder) pathOf(base string) string { return filepath.Join(d.path, base) }

// openFile opens a file that any user could have created. It rejects everything but a regular file
// with one name and a trusted owner. With os.O_CREATE it creates a missing file.
func (d *folder) openFile(base string, flag int) (*os.File, error) {
	create := flag&os.O_CREATE != 0
	if create && d.perm.group != "" {
		if err := d.makeFile(base); err != nil {
			return nil, err
		}
		flag &^= os.O_CREATE
	}
	f, err := d.root.OpenFile(base, flag|nonblock, d.perm.file&0o600)
	if err != nil {
		if isLink(d.pathOf(base)) {
			err = fmt.Errorf("%w: %q is a symbolic link; remove it", driver.ErrConfig, d.pathOf(base))
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || links(info) > 1) {
		err = fmt.Errorf("%w: %q is not a regular file, or has several hard links; remove it", driver.ErrConfig, d.pathOf(base))
	}
	if err == nil {
		err = d.perm.owned(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if create && info.Mode().Perm() != d.perm.file {
		d.perm.apply(f)
	}
	return f, nil
}

// makeFile creates an empty file, unless one exists. The file appears with its mode, for the same
// reason as a directory; see perm.mkdir.
func (d *folder) makeFile(base string) error {
	if _, err := d.root.Lstat(base); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := halfMade + uuid.NewString()
	f, err := d.createFile(temp)
	if err != nil {
		return err
	}
	f.Close()
	d.perm.step("made")
	err = d.root.Link(temp, base) // not a rename, which would replace a file created meanwhile
	if removed := d.root.Remove(temp); err == nil {
		err = removed
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // another process has created it, or has removed the temporary file
	}
	return err
}

// createFile creates a file that must not exist. The umask may remove permissions, so apply sets
// those of the group.
func (d *folder) createFile(base string) (*os.File, error) {
	f, err := d.root.OpenFile(base, os.O_RDWR|os.O_CREATE|os.O_EXCL, d.perm.file&0o600)
	if err == nil {
		d.perm.apply(f)
	}
	return f, err
}

// writeNew creates or replaces a file atomically: it has the old content or the new one, whatever
// happens. Temporary files that a crash leaves behind are removed together with those of tickets.
func (d *folder) writeNew(base string, content []byte) (err error) {
	temp := "new." + base
	_ = d.root.Remove(temp)
	defer func() {
		if err != nil {
			_ = d.root.Remove(temp)
		}
	}()
	f, err := d.createFile(temp)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = d.root.Rename(temp, base); err != nil {
		return err
	}
	return d.f.Sync()
}

// numberWidth is the fixed width of a stored number, so that it can be overwritten in place without
// truncating the file.
const numberWidth = 20

func formatNumber(n int64) []byte { return fmt.Appendf(nil, "%0*d", numberWidth, n) }

// parseNumber is the inverse of formatNumber. ok is false for other texts.
func parseNumber(b []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && len(b) == numberWidth && n >= 0
}

// errDamaged is wrapped by errors about files with invalid content.
var errDamaged = errors.New("is damaged")

// readNumber returns the number stored in a file. ok is false if the file does not exist.
func (d *folder) readNumber(base string) (n int64, ok bool, err error) {
	f, err := d.openFile(base, os.O_RDONLY)
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
		return 0, false, fmt.Errorf("%w: %q %w: write a number of %d digits into it that is greater than any before (date +%%s%%6N, padded with zeros, is suitable)", driver.ErrUnavailable, d.pathOf(base), errDamaged, numberWidth)
	}
	return n, true, nil
}

// writeNumber stores a number. It is durable once the returned file has been synced; the file is
// nil if it is durable already.
func (d *folder) writeNumber(base string, n int64) (*os.File, error) {
	content := formatNumber(n)
	f, err := d.openFile(base, os.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, d.writeNew(base, content)
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// settle makes numbers durable and closes all of their files, even after an error.
func settle(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Sync(), f.Close())
		}
	}
	return errors.Join(errs...)
}

// vanished reports whether path certainly no longer leads to the open file f. An error, such as a
// directory that is temporarily inaccessible, proves nothing.
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

// isGone is vanished for callers that check again later: an error counts as not gone.
func isGone(f *os.File, path string) bool {
	gone, err := vanished(f, path)
	return gone && err == nil
}

// isLink reports whether path is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}
