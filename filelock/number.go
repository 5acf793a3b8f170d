package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

// writeNew creates or replaces a file atomically: it has the old content or the new one, whatever
// happens. Temporary files that a crash leaves behind are removed together with those of tickets.
func (d *folder) writeNew(base string, content []byte) (err error) {
	temp := "new." + base
	_ = d.remove(temp)
	defer func() {
		if err != nil {
			_ = d.remove(temp)
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
	if err = d.rename(temp, base); err != nil {
		return err
	}
	return d.sync()
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
	b, err := d.read(base, 2*numberWidth)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
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

// isGone is vanished for callers that check again later: an error counts as not gone.
func isGone(f *os.File, path string) bool {
	gone, err := vanished(f, path)
	return gone && err == nil
}
