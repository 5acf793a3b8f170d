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

// usedDir holds an empty file for each name that may be held, waited for or closed
// by a minimum hold, so that List and Watch need not look at idle names. The file
// is made before the first ticket, and removed by whoever finds none; both in the
// gate of the name. No name is encoded with a dot in front.
const usedDir = ".used"

// mark notes that the name is in use.
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

// unmark notes that the name is idle.
func (g *nameLock) unmark() { _ = os.Remove(g.markPath()) }

func (g *nameLock) markPath() string {
	return filepath.Join(g.dir.path, usedDir, filepath.Base(g.path))
}

// unmarkIdle is unmark for a name without tickets, unless a minimum hold or
// flock(1) keeps it. The caller is in the gate, or it could take the mark of a
// request that is about to make its ticket.
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

// names returns the names in use that q chooses, in order, and what kept it from
// reading some of them. One name that was asked for exactly is not looked up: the caller
// finds out whether it is there.
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
