package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// sweepAfter is how long a name is idle before it is removed, and how often that
// is done.
const sweepAfter = time.Hour

// Files beside the directories of the names.
const (
	sweepFile  = ".sweep"  // its flock keeps two from sweeping, its time says when it was done
	floorFile  = ".floor"  // no token of a name that was removed is greater
	sweptNames = ".swept." // what is being removed
)

// maybeSweep starts to remove idle names if nobody has for long. The goroutine
// ends when all have been looked at; nothing is lost if its process ends before.
func (e *Engine) maybeSweep() {
	e.mu.Lock()
	due := time.Since(e.swept) > sweepAfter
	if due {
		e.swept = time.Now()
	}
	e.mu.Unlock()
	if !due {
		return
	}
	path := filepath.Join(e.dir, sweepFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.perm.file&0o600); err == nil {
			e.perm.apply(f)
			f.Close()
		}
		return // a new directory
	}
	if err == nil && time.Since(info.ModTime()) > sweepAfter {
		go e.sweep(sweepAfter)
	}
}

// sweep removes the names that have been idle for so long.
func (e *Engine) sweep(after time.Duration) {
	e.step("begin")
	top := &nameLock{engine: e, dir: e.dir}
	defer top.close()
	if top.open() != nil {
		return
	}
	f, err := top.openFile(sweepFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, lockExclusive) != nil {
		return
	}
	floor, err := top.raiseFloor(time.Now().UnixMicro())
	if err != nil {
		return
	}
	e.step("floor")
	entries, _ := os.ReadDir(e.dir)
	for _, entry := range entries {
		if base := entry.Name(); strings.HasPrefix(base, sweptNames) {
			_ = os.RemoveAll(filepath.Join(e.dir, base))
		} else if entry.IsDir() && !strings.HasPrefix(base, ".") {
			floor = sweepName(top, base, floor, after)
		}
	}
	stamp(f)
}

// raiseFloor makes sure, durably, that the tokens of names that come again are
// greater than n. The caller has the flock of the sweepFile.
func (g *nameLock) raiseFloor(n int64) (int64, error) {
	old, _, err := g.readNumber(floorFile)
	if err != nil || old >= n {
		return old, err
	}
	return n, g.writeNew(floorFile, formatNumber(n)) // replaced, since it is read without any lock
}

// sweepName removes one name below top if nobody uses it, and returns the floor.
func sweepName(top *nameLock, base string, floor int64, after time.Duration) int64 {
	g := &nameLock{engine: top.engine, name: base, dir: top.path(base)}
	if !g.old(after) || g.try(false) != nil {
		g.close()
		return floor
	}
	defer g.leave()
	lock, idle := g.idle()
	if lock != nil {
		defer lock.Close()
	}
	if !idle {
		return floor
	}
	token, _, err := g.readNumber("token")
	if err != nil {
		return floor
	}
	if token > floor {
		if floor, err = top.raiseFloor(token); err != nil {
			return 0 // so that every other name tries again
		}
	}
	g.engine.step("locked")
	g.unmark()
	gone := top.path(sweptNames + uuid.NewString())
	if os.Rename(g.dir, gone) != nil {
		return floor
	}
	g.engine.step("renamed")
	for _, base := range kept {
		_ = g.root.Remove(base)
	}
	_ = os.Remove(gone)
	return floor
}

// old reports whether the name was last acquired long ago.
func (g *nameLock) old(after time.Duration) bool {
	info, err := os.Lstat(g.path("token"))
	if err != nil {
		info, err = os.Lstat(g.dir)
	}
	return err == nil && time.Since(info.ModTime()) >= after
}

// kept is what an idle name consists of.
var kept = []string{"lock", "token", "name", "not-before"}

// idle reports whether nobody uses the name, and returns its lock file, locked if
// there is one. A name with a limit or a pending minimum hold is not idle, and one
// with a file that is not ours is left alone.
func (g *nameLock) idle() (lock *os.File, idle bool) {
	all, err := g.tickets()
	if err != nil {
		return nil, false
	}
	for _, t := range all {
		f, err := g.openTicket(t)
		if err != nil || f != nil {
			f.Close()
			return nil, false
		}
	}
	_, others, err := listTickets(g.dir)
	for _, base := range others {
		if !slices.Contains(kept, base) {
			return nil, false
		}
	}
	if until, _, numberErr := g.readNumber("not-before"); err != nil || numberErr != nil || time.UnixMicro(until).After(time.Now()) {
		return nil, false
	}
	lock, err = g.openFile("lock", os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	return lock, err == nil && flock(lock, lockExclusive) == nil
}
