package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	path := g.markPath()
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, g.perm.file&0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := g.perm.mkdir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, g.perm.file&0o600)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// unmark marks the name as idle.
func (g *nameLock) unmark() { _ = os.Remove(g.markPath()) }

func (g *nameLock) markPath() string {
	return filepath.Join(g.dir.path, usedDir, filepath.Base(g.path))
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
func (d *directory) names(ctx context.Context, q driver.Query) ([]string, error) {
	if err := d.ready(ctx, false); err != nil {
		return nil, err
	}
	if q.Exact {
		return []string{q.Prefix}, nil
	}
	entries, err := os.ReadDir(filepath.Join(d.path, usedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, d.unavailable(err)
	}
	var names []string
	var unread error
	for _, entry := range entries {
		b, err := os.ReadFile(filepath.Join(d.path, entry.Name(), nameFile))
		switch {
		case err == nil && q.Matches(string(b)):
			names = append(names, string(b))
		case err != nil && !errors.Is(err, fs.ErrNotExist) && unread == nil:
			unread = d.unavailable(err)
		}
	}
	slices.Sort(names)
	return names, unread
}
