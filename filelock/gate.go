package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// A gate is the right to change a name: the flock on the directory of the name.
// All that decides who holds and who waits happens inside. Files are opened below
// the directory that is locked, so nobody who replaces it by a link can lead us
// elsewhere.
type nameLock struct {
	engine *Engine
	name   string
	dir    string   // its path
	root   *os.Root // the directory itself
	f      *os.File // the same
	inside bool     // f is locked
}

// dirOf returns the directory of a name.
func (e *Engine) dirOf(name string) string { return filepath.Join(e.dir, encode(name)) }

// enter goes through the gate of a name. With create it makes the directory of
// the name; otherwise a missing one is fs.ErrNotExist. Whoever finds the gate
// closed tries again at intervals that grow, or hundreds of processes that come
// at once would leave no time to the one inside.
func (e *Engine) enter(ctx context.Context, name string, create bool) (*nameLock, error) {
	return e.enterWithin(ctx, name, create, gatePatience)
}

func (e *Engine) enterWithin(ctx context.Context, name string, create bool, patience time.Duration) (*nameLock, error) {
	g := &nameLock{engine: e, name: name, dir: e.dirOf(name)}
	if err := g.enter(ctx, create, patience); err != nil {
		return nil, err
	}
	return g, nil
}

// enter goes through the gate; see [Engine.enter].
func (g *nameLock) enter(ctx context.Context, create bool, patience time.Duration) error {
	pause := retry.NewBackoff(50*time.Microsecond, 50*time.Millisecond)
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

// peek is enter for those who only want to show a name. If somebody is stuck in
// the gate they stay outside, and trouble says who.
func (e *Engine) peek(ctx context.Context, name string) (g *nameLock, trouble, err error) {
	g, err = e.enterWithin(ctx, name, false, peekPatience)
	if !errors.Is(err, errGate) {
		return g, nil, err
	}
	g = &nameLock{engine: e, name: name, dir: e.dirOf(name)}
	if openErr := g.open(); openErr != nil {
		g.close()
		return nil, nil, openErr
	}
	return g, err, nil
}

// try enters if nobody else is inside. A directory that was replaced meanwhile
// counts as busy: its successor is next.
func (g *nameLock) try(create bool) error {
	if g.f == nil {
		err := g.open()
		if create && errors.Is(err, fs.ErrNotExist) {
			if err := g.create(); err != nil {
				return err
			}
			err = g.open()
		}
		if err != nil {
			return err
		}
	}
	g.engine.step("opened")
	if err := flock(g.f, lockExclusive); err != nil {
		return err
	}
	g.inside = true
	g.engine.step("entered")
	err := g.check(create)
	if err != nil {
		g.leave()
	}
	return err
}

// open opens the directory of the name.
func (g *nameLock) open() (err error) {
	if g.root, err = os.OpenRoot(g.dir); err != nil {
		return err
	}
	g.f, err = g.root.Open(".")
	return err
}

// create makes the directory of the name. Whoever keeps something durable there
// syncs the directory above.
func (g *nameLock) create() error {
	if err := g.engine.perm.makeDirs(); err != nil {
		return err
	}
	if err := g.engine.perm.mkdir(g.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// check looks, inside, whether this is the directory everybody else sees, and
// one of ours.
func (g *nameLock) check(create bool) error {
	gone, err := vanished(g.f, g.dir)
	if err != nil {
		return err
	}
	if gone {
		if isLink(g.dir) {
			return fmt.Errorf("%w: %q is a symbolic link; remove it", driver.ErrConfig, g.dir)
		}
		return errBusy
	}
	if err := g.engine.perm.owned(g.f); err != nil || !create {
		return err
	}
	return g.label()
}

// label keeps the exact name in the directory, for List.
func (g *nameLock) label() error {
	if _, err := g.root.Lstat("name"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return g.writeNew("name", []byte(g.name))
}

// leave lets the next one in.
func (g *nameLock) leave() {
	_ = flock(g.f, unlock) // a process forked meanwhile may have a duplicate
	g.close()
}

// close forgets the directory.
func (g *nameLock) close() {
	g.f.Close()
	if g.root != nil {
		g.root.Close()
	}
	g.f, g.root, g.inside = nil, nil, false
}

// stuck says who keeps the gate closed, if the system tells.
func (g *nameLock) stuck() error {
	who := ""
	if f, err := os.Open(g.dir); err == nil {
		if pids, _ := flockOwners(f); len(pids) > 0 {
			who = fmt.Sprintf(" (pid %d; is it stopped?)", pids[0])
		}
		f.Close()
	}
	return fmt.Errorf("%w: %q: %w%s", driver.ErrUnavailable, g.dir, errGate, who)
}

// path returns the path of a file of the name.
func (g *nameLock) path(base string) string { return filepath.Join(g.dir, base) }
