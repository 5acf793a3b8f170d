package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// A directory contains the folders of all names. It represents what is on disk; the waiters and
// waiters and holds of this process are in waker and holds.
type directory struct {
	path    string
	perm    perm
	network bool          // it may be on a network file system
	listing time.Duration // how long one list waits in vain: listPatience

	mu      sync.Mutex // guards checked
	checked bool       // the directory and its file system are acceptable

	pass func(what string) // for tests: called where other processes may interleave
}

// open opens a folder below the directory; without elements, the directory itself.
func (d *directory) open(elem ...string) (*folder, error) { return d.openFor(nil, elem...) }

// openFor is open for a call with a patience.
func (d *directory) openFor(p *patience, elem ...string) (*folder, error) {
	at, err := openDirectory(d.path, &d.perm)
	if err == nil {
		at.patience = p
	}
	for _, base := range elem {
		if err != nil {
			return nil, err
		}
		above := at
		at, err = above.sub(base)
		above.close()
	}
	return at, err
}

// fileSystem is statFS; tests replace it.
var fileSystem = statFS

// ready returns an error if ctx has ended, or if locks would not be reliable on this system, file
// system or directory. With create it creates the directory. It caches success: a directory that is
// removed later is created again with the next name.
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
		if err := makeDirectory(d.path, &d.perm); err != nil {
			return d.unavailable(err)
		}
	}
	top, err := d.open()
	if os.IsNotExist(err) && !create {
		return nil
	}
	if err != nil {
		return d.unavailable(err)
	}
	defer top.close()
	system, network, err := fileSystem(top.f)
	switch {
	case err != nil:
		return d.unavailable(err)
	case network && !d.network:
		return fmt.Errorf("%w: %q is on a network file system (%s), where flock is not reliable; choose a local directory, or set AllowNetwork", driver.ErrUnsupported, d.path, system)
	}
	info, err := top.f.Stat()
	if err == nil {
		err = d.perm.check(info)
	}
	if err != nil {
		return d.unavailable(err)
	}
	d.checked = true
	return nil
}

// unavailable converts an error of the system to one of package driver, with what to do about it.
func (d *directory) unavailable(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrConfig): // it is one already
		return err
	case os.IsPermission(err), isReadOnly(err), isNotDir(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; choose a directory this user may write, such as --url file:///path", driver.ErrConfig, d.path, err)
	case isFull(err):
		return fmt.Errorf("%w: cannot keep locks in %q: %w; free some space or choose another directory", driver.ErrUnavailable, d.path, err)
	}
	return fmt.Errorf("%w: locks in %q: %w", driver.ErrUnavailable, d.path, err)
}

// step lets tests stop the engine where other processes may interleave.
func (d *directory) step(what string) {
	if d.pass != nil {
		d.pass(what)
	}
}
