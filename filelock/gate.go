package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fencelock/fencelock/driver"
)

// gatePatience is how long a gate may stay closed. Whoever is inside leaves
// within a millisecond or so, unless it is frozen there.
const gatePatience = 5 * time.Second

// errGate says that somebody stays in the gate for long.
var errGate = errors.New("somebody is stuck while changing it")

// A gate is the right to change a name: the flock on the directory of the name.
// All that decides who holds and who waits happens inside.
type gate struct {
	engine *Engine
	name   string
	dir    string
	f      *os.File
}

// dirOf returns the directory of a name.
func (e *Engine) dirOf(name string) string { return filepath.Join(e.dir, encode(name)) }

// enter goes through the gate of a name. With create it makes the directory of
// the name; otherwise a missing one is fs.ErrNotExist.
func (e *Engine) enter(ctx context.Context, name string, create bool) (*gate, error) {
	g := &gate{engine: e, name: name, dir: e.dirOf(name)}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Microsecond, time.Millisecond
	for start := time.Now(); ; {
		err := g.try(create)
		if !errors.Is(err, errBusy) {
			return g, err
		}
		if time.Since(start) > gatePatience {
			return nil, g.stuck()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// try enters if nobody else is inside. A directory that was replaced meanwhile
// counts as busy: its successor is next.
func (g *gate) try(create bool) error {
	f, err := os.Open(g.dir)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := g.create(); err != nil {
			return err
		}
		f, err = os.Open(g.dir)
	}
	if err != nil {
		return err
	}
	g.f = f
	if err := flock(f, lockExclusive); err != nil {
		f.Close()
		return err
	}
	if !same(f, g.dir) {
		g.leave()
		return errBusy
	}
	if create {
		if err := g.label(); err != nil {
			g.leave()
			return err
		}
	}
	return nil
}

// create makes the directory of the name.
func (g *gate) create() error {
	if err := makeDirs(g.engine.dir); err != nil {
		return err
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(g.engine.dir)
}

// label keeps the exact name in the directory, for List.
func (g *gate) label() error {
	path := g.path("name")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeNew(path, []byte(g.name))
}

// leave lets the next one in.
func (g *gate) leave() {
	_ = flock(g.f, unlock) // a process forked meanwhile may have a duplicate
	g.f.Close()
}

// stuck says who keeps the gate closed, if the system tells.
func (g *gate) stuck() error {
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
func (g *gate) path(base string) string { return filepath.Join(g.dir, base) }
