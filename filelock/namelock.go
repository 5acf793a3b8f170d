package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// lockPatience is how long to wait for a directory lock. Its holder releases it within about a
// millisecond, unless it is frozen.
const lockPatience = 5 * time.Second

// peekPatience is how long List and Watch wait for a directory lock.
const peekPatience = time.Second

// errStuck means that a process has had the directory lock for a long time.
var errStuck = errors.New("a process has kept the directory lock for a long time")

// A nameLock is a name's folder together with its directory lock: the flock on the folder, which is
// needed to change the name. Everything that decides who holds and who waits happens under it. One
// goroutine uses it.
type nameLock struct {
	*folder         // nil while it is not open
	up      *folder // the directory that contains it
	dir     *directory
	waits   *patience // of the call that uses it
	above   []string  // the path of up below the engine's directory
	base    string    // the folder's name in up
	path    string    // the folder's path
	name    string    // empty for a directory of records
	inside  bool      // the folder is locked
}

// nameLock returns the nameLock of a name. Nothing has been opened yet.
func (d *directory) nameLock(name string) *nameLock {
	return d.nameLockAt(name, encode(name))
}

// nameLockAt is nameLock for the folder of the name, or for a folder without a name: base in the
// directory above.
func (d *directory) nameLockAt(name, base string, above ...string) *nameLock {
	path := filepath.Join(append(append([]string{d.path}, above...), base)...)
	return &nameLock{dir: d, above: above, base: base, path: path, name: name}
}

// open opens the folder.
func (g *nameLock) open() (err error) {
	if g.up, err = g.dir.openFor(g.waits, g.above...); err != nil {
		return err
	}
	if g.folder, err = g.up.sub(g.base); err != nil {
		g.close()
	}
	return err
}

// close closes the folder, if it is open.
func (g *nameLock) close() {
	g.folder.close()
	g.up.close()
	g.folder, g.up = nil, nil
}

// enter takes the directory lock of a name. With create it creates the name's folder; otherwise the
// error is fs.ErrNotExist if there is none.
func (d *directory) enter(ctx context.Context, name string, create bool) (*nameLock, error) {
	g := d.nameLock(name)
	return g, g.enter(ctx, create, lockPatience)
}

// peek is enter for callers that only read. If the directory lock is stuck, they read without it,
// and trouble says who has it. If err is not nil, nothing is open.
func (d *directory) peek(ctx context.Context, p *patience, name string) (g *nameLock, trouble, err error) {
	g = d.nameLock(name)
	g.waits = p
	err = g.enter(ctx, false, max(time.Millisecond, p.limit(peekPatience)))
	if !errors.Is(err, errStuck) {
		return g, nil, err
	}
	if openErr := g.open(); openErr != nil {
		g.close()
		return nil, nil, openErr
	}
	return g, err, nil
}

// enter takes the directory lock. While it is taken, it retries with growing pauses, because
// hundreds of polling processes would leave no time to the one that has it. After an error nothing
// is open.
func (g *nameLock) enter(ctx context.Context, create bool, patience time.Duration) error {
	pause := retry.NewBackoff(50*time.Microsecond, g.longestPause())
	for start := time.Now(); ; {
		err := g.try(create)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errBusy) {
			g.close()
			return err
		}
		if time.Since(start) > patience {
			g.waits.spent(start)
			err := g.stuck()
			g.close()
			return err
		}
		if !pause.Wait(ctx) {
			g.close()
			return ctx.Err()
		}
	}
}

// longestPause returns the longest pause between two attempts. Hundreds of processes may wait for
// the directory lock of a name, which is free most of the time. The one of a directory of records
// is held while a record is written to disk; a process that writes one record after another
// releases it only for moments, which would be missed for seconds with long pauses.
func (g *nameLock) longestPause() time.Duration {
	if g.name == "" {
		return 2 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// try takes the directory lock if it is free. A folder that was replaced meanwhile counts as busy:
// the next attempt uses its successor.
func (g *nameLock) try(create bool) error {
	if g.folder == nil {
		err := g.open()
		if create && errors.Is(err, fs.ErrNotExist) {
			if err := g.make(); err != nil {
				return err
			}
			err = g.open()
		}
		if err != nil {
			return err
		}
	}
	g.dir.step("opened")
	if err := flock(g.f, lockExclusive); err != nil {
		return err
	}
	g.inside = true
	g.dir.step("entered")
	err := g.check(create)
	if err != nil {
		g.leave()
	}
	return err
}

// make creates the folder in the directory above. Callers that need it durable must sync that
// directory.
func (g *nameLock) make() error {
	if err := makeDirectory(g.dir.path, &g.dir.perm); err != nil {
		return err
	}
	up, err := g.dir.open(g.above...)
	if err != nil {
		return err
	}
	defer up.close()
	if err := up.mkdir(g.base); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// check verifies, under the directory lock, that this is the current folder.
func (g *nameLock) check(create bool) error {
	gone, err := vanished(g.f, g.path)
	if gone {
		return errBusy
	}
	if err == nil && create {
		_, err = g.stat(nameFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = g.writeNew(nameFile, []byte(g.name))
		}
	}
	return err
}

// label returns the name that is stored in the folder base, for List: a long name is encoded as a
// hash.
func (d *folder) label(base string) (string, error) {
	b, err := d.read(nameFile, maxEncoded*3) // longer than any name
	if err == nil && encode(string(b)) != base {
		err = fmt.Errorf("%w: %q %w: remove it, and the next acquisition of the name writes it again", driver.ErrUnavailable, d.pathOf(nameFile), errDamaged)
	}
	return string(b), err
}

// leave releases the directory lock, if it is held, and closes the folder.
func (g *nameLock) leave() {
	_ = flock(g.f, unlock) // unlock explicitly: a process forked meanwhile may have a duplicate
	g.close()
	g.inside = false
}

// stuck returns the error that says who has the directory lock, if the system reports it.
func (g *nameLock) stuck() error {
	by := ""
	if g.folder != nil {
		if pids := g.waits.flockOwners(g.f); len(pids) > 0 {
			by = fmt.Sprintf(" (pid %d; is it stopped?)", pids[0])
		}
	}
	return fmt.Errorf("%w: %q: %w%s", driver.ErrUnavailable, g.path, errStuck, by)
}
