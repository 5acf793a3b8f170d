package filelock

import (
	"errors"
	"io/fs"
	"os"
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
	top, err := s.dir.open()
	if err != nil {
		return
	}
	defer top.close()
	last, err := top.stat(sweepFile)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a new directory
		if f, err := top.openFile(sweepFile, os.O_RDWR|os.O_CREATE); err == nil {
			f.Close()
		}
	case err == nil && time.Since(last.modified) > sweepAfter:
		go s.sweep(sweepAfter)
	}
}

// sweep removes the names that have been idle for the given time.
func (s *sweeper) sweep(after time.Duration) {
	s.dir.step("begin")
	top, err := s.dir.open()
	if err != nil {
		return
	}
	defer top.close()
	w := sweep{dir: s.dir, top: top, after: after}
	// First, since a process that died while it created sweepFile has left it with two names, and such
	// a file is refused.
	names, _ := top.names()
	removeHalfMade(top, names)
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
	names, _ = top.names()
	for _, base := range names {
		if strings.HasPrefix(base, sweptNames) {
			_ = top.removeDir(base)
		} else if !strings.HasPrefix(base, ".") {
			w.remove(base)
		}
	}
	if records, err := top.sub(recordsDir); err == nil {
		names, _ = records.names()
		removeHalfMade(records, names)
		records.close()
	}
	stamp(f)
}

// removeHalfMade removes what processes that died have left behind in a directory with these
// entries.
func removeHalfMade(d *folder, names []string) {
	for _, base := range names {
		if !strings.HasPrefix(base, halfMade) {
			continue
		}
		made, err := d.stat(base)
		switch {
		case err != nil || time.Since(made.modified) <= sweepAfter:
		case made.dir:
			_ = d.removeDir(base)
		default:
			_ = d.remove(base)
		}
	}
}

// A sweep is one pass over all names, under the flock of sweepFile.
type sweep struct {
	dir   *directory
	top   *folder
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
	g := w.dir.nameLockAt(base, base)
	if !w.unusedLong(base) || g.try(false) != nil {
		g.close()
		return
	}
	defer g.leave()
	if !w.covers(g) {
		return
	}
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
	gone := sweptNames + uuid.NewString()
	if w.top.rename(base, gone) != nil {
		return
	}
	w.dir.step("renamed")
	_ = w.top.removeDir(gone)
}

// covers reports whether the folder is in the directory whose floor is raised, and not in one that
// has replaced it.
func (w *sweep) covers(g *nameLock) bool {
	top, err := w.top.f.Stat()
	if err != nil {
		return false
	}
	up, err := g.up.f.Stat()
	return err == nil && os.SameFile(top, up)
}

// unusedLong reports whether the last acquisition of the name was long ago.
func (w *sweep) unusedLong(base string) bool {
	made, err := w.top.stat(base)
	if err != nil || !made.dir {
		return false
	}
	if d, err := w.top.sub(base); err == nil {
		if token, err := d.stat(tokenFile); err == nil {
			made = token
		}
		d.close()
	}
	return time.Since(made.modified) >= w.after
}

// kept are the files of an idle name.
var kept = []string{lockFile, tokenFile, nameFile, notBeforeFile}

// isIdle reports whether a name is unused, and returns its lock file, locked, if there is one. A
// name with a limit set by Resize or a running minimum hold is not idle. A folder with any other
// file is left alone.
func (w *sweep) isIdle(g *nameLock) (lock *os.File, idle bool) {
	if _, err := g.label(g.base); err != nil {
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
	_, others, err := g.listTickets()
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
