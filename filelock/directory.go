package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// A directory is where the folders of all names are, and all processes meet. It is
// what is on disk; what this process waits for and holds there is in bells and holds.
type directory struct {
	path    string
	perm    perm
	network bool // it may be on a network file system

	mu      sync.Mutex // guards checked
	checked bool       // the directory and its file system are acceptable

	pass func(what string) // for tests: called where others could come in between
}

// below returns a folder of the directory; without elements it is the directory itself.
func (d *directory) below(elem ...string) folder {
	return folder{path: filepath.Join(append([]string{d.path}, elem...)...), perm: &d.perm}
}

// fileSystem is statFS; tests replace it.
var fileSystem = statFS

// ready refuses contexts that have ended, and systems, file systems and directories on which
// locks cannot be trusted. It creates the directory if create is set, and remembers a good answer:
// a directory that was removed later is made again with the next name.
func (d *directory) ready(ctx context.Context, create bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checked {
		return nil
	}
	if err := supported(); err != nil {
		return err
	}
	if create {
		if err := d.perm.makeDirs(); err != nil {
			return d.unavailable(err)
		}
	}
	system, network, err := fileSystem(d.path)
	switch {
	case os.IsNotExist(err) && !create:
		return nil
	case err != nil:
		return d.unavailable(err)
	case network && !d.network:
		return fmt.Errorf("%w: %q is on a network file system (%s), where flock cannot be trusted; choose a local directory, or set AllowNetwork", driver.ErrUnsupported, d.path, system)
	}
	if err := d.perm.check(); err != nil {
		return d.unavailable(err)
	}
	d.checked = true
	return nil
}

// unavailable puts what the system said into one line that says what to do.
func (d *directory) unavailable(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrConfig): // it says so already
		return err
	case os.IsPermission(err), isReadOnly(err), isNotDir(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; choose a directory this user may write, such as --url file:///path", driver.ErrConfig, d.path, err)
	case isFull(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; free some space or choose another directory", driver.ErrUnavailable, d.path, err)
	}
	return fmt.Errorf("%w: locks in %q: %w", driver.ErrUnavailable, d.path, err)
}

// step lets tests stop the engine where others could come in between.
func (d *directory) step(what string) {
	if d.pass != nil {
		d.pass(what)
	}
}
