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

	"github.com/fencelock/fencelock/internal/retry"
)

// sweepAfter is how long a name is idle before it is removed, and how often that
// is done.
const sweepAfter = time.Hour

// Files beside the directories of the names.
const (
	sweepFile  = ".sweep"  // its flock keeps two from sweeping, its time says when it was done
	sweptNames = ".swept." // what is being removed
)

// A sweeper removes the names of a directory that nobody uses.
type sweeper struct {
	dir   *directory
	asked retry.Period // whether it is time
}

// maybeSweep starts to remove idle names if nobody has for long. The goroutine
// ends when all have been looked at; nothing is lost if its process ends before.
func (s *sweeper) maybeSweep() {
	if !s.asked.Due(sweepAfter) {
		return
	}
	path := filepath.Join(s.dir.path, sweepFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.begin()
		return // a new directory
	}
	if err == nil && time.Since(info.ModTime()) > sweepAfter {
		go s.sweep(sweepAfter)
	}
}

// begin makes the file whose time says when a new directory was swept.
func (s *sweeper) begin() {
	top := s.dir.below()
	defer top.close()
	if top.open() != nil {
		return
	}
	if f, err := top.openFile(sweepFile, os.O_RDWR|os.O_CREATE); err == nil {
		f.Close()
	}
}

// sweep removes the names that have been idle for so long.
func (s *sweeper) sweep(after time.Duration) {
	s.dir.step("begin")
	w := sweep{dir: s.dir, top: s.dir.below(), after: after}
	defer w.top.close()
	if w.top.open() != nil {
		return
	}
	f, err := w.top.openFile(sweepFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, lockExclusive) != nil {
		return
	}
	if w.raiseFloor(time.Now().UnixMicro()) != nil {
		return
	}
	s.dir.step("floor")
	entries, _ := os.ReadDir(s.dir.path)
	for _, entry := range entries {
		base := entry.Name()
		if info, err := entry.Info(); strings.HasPrefix(base, sweptNames) ||
			strings.HasPrefix(base, halfMade) && err == nil && time.Since(info.ModTime()) > sweepAfter {
			_ = os.RemoveAll(w.top.pathOf(base))
		} else if entry.IsDir() && !strings.HasPrefix(base, ".") {
			w.remove(base)
		}
	}
	stamp(f)
}

// A sweep is one look at all names, by the one who has the flock of the sweepFile.
type sweep struct {
	dir   *directory
	top   folder
	after time.Duration
	floor int64 // what the floorFile has; 0 if that is not known
}

// raiseFloor makes sure, durably, that the tokens of names that come again are
// greater than n.
func (w *sweep) raiseFloor(n int64) (err error) {
	if w.floor >= n {
		return nil
	}
	if w.floor, _, err = w.top.readNumber(floorFile); err != nil || w.floor >= n {
		return err
	}
	// Replaced as a whole, since mint reads it without any lock.
	if err = w.top.writeNew(floorFile, formatNumber(n)); err == nil {
		w.floor = n
	}
	return err
}

// remove removes one name if nobody uses it.
func (w *sweep) remove(base string) {
	g := &nameLock{folder: w.dir.below(base), dir: w.dir, name: base}
	if !w.unusedLong(g) || g.try(false) != nil {
		g.close()
		return
	}
	defer g.leave()
	lock, idle := w.isIdle(g)
	if lock != nil {
		defer lock.Close()
	}
	if !idle {
		return
	}
	// The floor is durable before the token goes: a crash in between leaves both.
	token, _, err := g.readNumber(tokenFile)
	if err != nil || w.raiseFloor(token) != nil {
		return
	}
	w.dir.step("locked")
	g.unmark()
	gone := w.top.pathOf(sweptNames + uuid.NewString())
	if os.Rename(g.path, gone) != nil {
		return
	}
	w.dir.step("renamed")
	for _, base := range kept {
		_ = g.root.Remove(base)
	}
	_ = os.Remove(gone)
}

// unusedLong reports whether the name was last acquired long ago.
func (w *sweep) unusedLong(g *nameLock) bool {
	info, err := os.Lstat(g.pathOf(tokenFile))
	if err != nil {
		info, err = os.Lstat(g.path)
	}
	return err == nil && time.Since(info.ModTime()) >= w.after
}

// kept is what an idle name consists of.
var kept = []string{lockFile, tokenFile, nameFile, notBeforeFile}

// isIdle reports whether nobody uses the name, and returns its lock file, locked if
// there is one. A name with a limit or a pending minimum hold is not idle, and one
// with a file that is not ours is left alone.
func (w *sweep) isIdle(g *nameLock) (lock *os.File, idle bool) {
	if b, err := g.root.ReadFile(nameFile); err != nil || encode(string(b)) != filepath.Base(g.path) {
		return nil, false // others may keep directories beside ours, such as an empty one, or one with a file "lock"
	}
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
	_, others, err := listTickets(g.path)
	for _, base := range others {
		if !slices.Contains(kept, base) {
			return nil, false
		}
	}
	if until, numberErr := g.notBefore(); err != nil || numberErr != nil || !until.IsZero() {
		return nil, false
	}
	lock, err = g.openFile(lockFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	return lock, err == nil && flock(lock, lockExclusive) == nil
}
