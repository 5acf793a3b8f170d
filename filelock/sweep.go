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

// sweepAfter is how long a name must be idle before it is removed, and the interval between sweeps.
const sweepAfter = time.Hour

// Files beside the folders of the names.
const (
	sweepFile  = ".sweep"  // its flock prevents concurrent sweeps; its time is that of the last one
	sweptNames = ".swept." // a folder that is being removed
)

// A sweeper removes the idle names of a directory.
type sweeper struct {
	dir   *directory
	asked retry.Period // when it last checked
}

// maybeSweep starts a sweep in the background if the last one is long ago. It is harmless if the
// process ends before the sweep does.
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

// begin creates the sweep file in a new directory.
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

// sweep removes the names that have been idle for the given time.
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

// A sweep is one pass over all names, under the flock of sweepFile.
type sweep struct {
	dir   *directory
	top   folder
	after time.Duration
	floor int64 // the number in floorFile; 0 if unknown
}

// raiseFloor makes sure, durably, that names that are created again get tokens greater than n.
func (w *sweep) raiseFloor(n int64) (err error) {
	if w.floor >= n {
		return nil
	}
	if w.floor, _, err = w.top.readNumber(floorFile); err != nil || w.floor >= n {
		return err
	}
	// Replace the file as a whole, because issue reads it without a lock.
	if err = w.top.writeNew(floorFile, formatNumber(n)); err == nil {
		w.floor = n
	}
	return err
}

// remove removes one name if it is idle.
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
	// The floor must be durable before the token is removed: a crash in between leaves both.
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

// unusedLong reports whether the last acquisition of the name was long ago.
func (w *sweep) unusedLong(g *nameLock) bool {
	info, err := os.Lstat(g.pathOf(tokenFile))
	if err != nil {
		info, err = os.Lstat(g.path)
	}
	return err == nil && time.Since(info.ModTime()) >= w.after
}

// kept are the files of an idle name.
var kept = []string{lockFile, tokenFile, nameFile, notBeforeFile}

// isIdle reports whether a name is unused, and returns its lock file, locked, if there is one. A
// name with a limit set by Resize or a running minimum hold is not idle. A folder with any other
// file is left alone.
func (w *sweep) isIdle(g *nameLock) (lock *os.File, idle bool) {
	if b, err := g.root.ReadFile(nameFile); err != nil || encode(string(b)) != filepath.Base(g.path) {
		return nil, false // it may be another program's directory
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
