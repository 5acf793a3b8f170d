package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// gatePatience is how long to wait for a directory lock. Its holder releases it within about a
// millisecond, unless it is frozen.
const gatePatience = 5 * time.Second

// peekPatience is how long List and Watch wait for a directory lock.
const peekPatience = time.Second

// errGate means that a process has had the directory lock for a long time.
var errGate = errors.New("a process has kept the directory lock for a long time")

// A nameLock is a name's folder together with its directory lock: the flock on the folder, which is
// needed to change the name. Everything that decides who holds and who waits happens under it. One
// goroutine uses it.
type nameLock struct {
	folder
	dir    *directory
	name   string // empty for a directory of records
	inside bool   // the folder is locked
}

// gate returns the nameLock of a name. Nothing has been opened yet.
func (d *directory) gate(name string) *nameLock {
	return &nameLock{folder: d.below(encode(name)), dir: d, name: name}
}

// enter takes the directory lock of a name. With create it creates the name's folder; otherwise the
// error is fs.ErrNotExist if there is none.
func (d *directory) enter(ctx context.Context, name string, create bool) (*nameLock, error) {
	g := d.gate(name)
	return g, g.enter(ctx, create, gatePatience)
}

// peek is enter for callers that only read. If the directory lock is stuck, they read without it,
// and trouble says who has it. If err is not nil, nothing is open.
func (d *directory) peek(ctx context.Context, name string) (g *nameLock, trouble, err error) {
	g = d.gate(name)
	err = g.enter(ctx, false, peekPatience)
	if !errors.Is(err, errGate) {
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
			g.close()
			return g.stuck()
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
	if g.f == nil {
		err := g.open()
		if create && errors.Is(err, fs.ErrNotExist) {
			if err := g.makeFolder(); err != nil {
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

// makeFolder creates the folder of the name. Callers that need it durable must sync the directory
// above.
func (g *nameLock) makeFolder() error {
	if err := g.perm.makeDirs(); err != nil {
		return err
	}
	if err := g.perm.mkdir(g.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// check verifies, under the directory lock, that this is the current folder and that its owner is
// trusted.
func (g *nameLock) check(create bool) error {
	gone, err := vanished(g.f, g.path)
	if err != nil {
		return err
	}
	if gone {
		if isLink(g.path) {
			return fmt.Errorf("%w: %q is a symbolic link; remove it", driver.ErrConfig, g.path)
		}
		return errBusy
	}
	if err := g.perm.owned(g.f); err != nil || !create {
		return err
	}
	return g.label()
}

// label stores the exact name in the folder, for List: a long name is encoded as a hash.
func (g *nameLock) label() error {
	if _, err := g.root.Lstat(nameFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return g.writeNew(nameFile, []byte(g.name))
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
	if f, err := os.Open(g.path); err == nil {
		if pids, _ := flockOwners(f); len(pids) > 0 {
			by = fmt.Sprintf(" (pid %d; is it stopped?)", pids[0])
		}
		f.Close()
	}
	return fmt.Errorf("%w: %q: %w%s", driver.ErrUnavailable, g.path, errGate, by)
}
