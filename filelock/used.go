package filelock

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// usedDir has an empty file for each name that may be held, waited for or closed by a minimum hold,
// so that List and Watch need not read idle names. The file is created before the first ticket, and
// removed by a process that finds none; both under the name's directory lock. No encoded name
// begins with a dot.
const usedDir = ".used"

// mark marks the name as in use.
func (g *nameLock) mark() error {
	used, err := g.up.sub(usedDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := g.up.mkdir(usedDir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		used, err = g.up.sub(usedDir)
	}
	if err != nil {
		return err
	}
	defer used.close()
	if _, err := used.stat(g.base); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := used.createFile(g.base)
	if err != nil {
		return err
	}
	return f.Close()
}

// unmark marks the name as idle.
func (g *nameLock) unmark() {
	if used, err := g.up.sub(usedDir); err == nil {
		_ = used.remove(g.base)
		used.close()
	}
}

// unmarkIdle is unmark for a name without tickets, unless it has a minimum hold or its lock file is
// locked. The caller must have the directory lock; otherwise a request that is about to create its
// ticket could lose its mark.
func (g *nameLock) unmarkIdle() {
	until, err := g.notBefore()
	f, busy := g.locked()
	if f != nil {
		f.Close()
	}
	if err == nil && !busy && until.IsZero() {
		g.unmark()
	}
}

// names returns the names in use that match q, in order, and an error about the first name that
// could not be read. An exact query returns its name without checking that it exists.
func (d *directory) names(ctx context.Context, p *patience, q driver.Query) ([]string, error) {
	if err := d.ready(ctx, false); err != nil {
		return nil, err
	}
	if q.Exact {
		return []string{q.Prefix}, nil
	}
	top, err := d.openFor(p)
	var marks []string
	if err == nil {
		defer top.close()
		marks, err = top.list(usedDir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, d.unavailable(err)
	}
	var names []string
	var unread error
	for _, base := range marks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, err := nameIn(top, base)
		switch {
		case err == nil && q.Matches(name):
			names = append(names, name)
		case err != nil && !errors.Is(err, fs.ErrNotExist) && unread == nil:
			unread = d.unavailable(err)
		}
	}
	slices.Sort(names)
	return names, unread
}

// nameIn returns the name whose folder is base.
func nameIn(top *folder, base string) (string, error) {
	d, err := top.sub(base)
	if err != nil {
		return "", err
	}
	defer d.close()
	return d.label(base)
}
