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

// gatePatience is how long a gate may stay closed. Whoever is inside leaves
// within a millisecond or so, unless it is frozen there.
const gatePatience = 5 * time.Second

// peekPatience is how long those wait who only want to show a name.
const peekPatience = time.Second

// errGate says that somebody stays in the gate for long.
var errGate = errors.New("somebody is stuck while changing it")

// A nameLock is the right to change a name: the flock on the directory of the name,
// which is called the gate. All that decides who holds and who waits happens inside.
// One goroutine uses it.
type nameLock struct {
	folder
	dir    *directory
	name   string // empty for a directory of records
	inside bool   // the folder is locked
}

// gate returns the gate of a name; nothing has been opened yet.
func (d *directory) gate(name string) *nameLock {
	return &nameLock{folder: d.below(encode(name)), dir: d, name: name}
}

// enter goes through the gate of a name. With create it makes the directory of
// the name; otherwise a missing one is fs.ErrNotExist.
func (d *directory) enter(ctx context.Context, name string, create bool) (*nameLock, error) {
	g := d.gate(name)
	return g, g.enter(ctx, create, gatePatience)
}

// peek is enter for those who only want to show a name. If somebody is stuck in
// the gate they stay outside, and trouble says who. If err is not nil, nothing is open.
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

// enter goes through the gate. Whoever finds it closed tries again at intervals that
// grow, or hundreds of processes that come at once would leave no time to the one
// inside. An error leaves nothing open.
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

// longestPause is how long a process that found the gate closed pauses at most. Hundreds may wait
// at the gate of a name, which is open most of the time. The gate of records is closed while a
// record is written to the disk. A process that changes one record after the other opens it for
// moments only, which a process with long pauses misses for seconds.
func (g *nameLock) longestPause() time.Duration {
	if g.name == "" {
		return 2 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// try enters if nobody else is inside. A directory that was replaced meanwhile
// counts as busy: its successor is next.
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

// makeFolder makes the directory of the name. Whoever keeps something durable there
// syncs the directory above.
func (g *nameLock) makeFolder() error {
	if err := g.perm.makeDirs(); err != nil {
		return err
	}
	if err := g.perm.mkdir(g.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// check looks, inside, whether this is the directory everybody else sees, and
// one of ours.
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

// label keeps the exact name in the directory, for List: a long name is encoded as a
// hash, which nobody can read.
func (g *nameLock) label() error {
	if _, err := g.root.Lstat(nameFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return g.writeNew(nameFile, []byte(g.name))
}

// leave lets the next one in. Outside of the gate it only closes the directory.
func (g *nameLock) leave() {
	_ = flock(g.f, unlock) // a process forked meanwhile may have a duplicate
	g.close()
	g.inside = false
}

// stuck says who keeps the gate closed, if the system tells.
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
