package filelock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// What a folder of a name has besides tickets and the name itself. Numbers have a fixed
// width and are overwritten in place: there is no moment at which a crash leaves none.
const (
	lockFile      = "lock"       // its flock excludes flock(1), which knows of no tickets
	tokenFile     = "token"      // the last token
	notBeforeFile = "not-before" // when the minimum hold ends, in microseconds since 1970

	// limitFile keeps the limit that Resize has set. It is only ever replaced as a
	// whole, unlike the numbers that every acquisition changes: a process or a
	// machine that dies meanwhile leaves the old limit or the new one.
	limitFile = "limit"

	// nameFile has the exact name.
	nameFile = "name"

	// floorFile is in the directory above: no token of a name that was removed is greater.
	floorFile = ".floor"
)

// lockFor takes the lock file's own flock, through which flock(1) excludes us and
// we exclude it. It is errBusy if somebody has it.
func (g *nameLock) lockFor(mode driver.Mode) (*os.File, error) {
	how := lockExclusive
	if mode == driver.Shared {
		how = lockShared
	}
	for range 10 { // somebody may be replacing the file
		f, err := g.openFile(lockFile, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how); err != nil {
			f.Close()
			return nil, err
		}
		if !isGone(f, g.pathOf(lockFile)) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%q is being replaced all the time", g.pathOf(lockFile))
}

// locked opens the lock file and reports whether anybody has its flock, with a ticket
// or without. It leaves it unlocked. The file is nil if it cannot be opened.
func (g *nameLock) locked() (f *os.File, busy bool) {
	f, err := g.openFile(lockFile, os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	busy = errors.Is(flock(f, lockExclusive), errBusy)
	_ = flock(f, unlock)
	return f, busy
}

// mint returns a token greater than any before. It is durable once the file,
// which may be nil, has been settled. A name that is new, or comes again after it
// was removed, begins above the floor.
func (g *nameLock) mint() (int64, *os.File, error) {
	last, old, err := g.readNumber(tokenFile)
	if err == nil && !old {
		top := g.dir.below()
		defer top.close()
		if err = top.open(); err == nil {
			last, _, err = top.readNumber(floorFile)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	token := max(last+1, time.Now().UnixMicro())
	f, err := g.writeNumber(tokenFile, token)
	if err == nil && !old {
		err = syncDir(g.dir.path) // whoever made the folder may not have yet
	}
	return token, f, err
}

// notBefore returns when the minimum hold ends; zero if none closes the name now.
func (g *nameLock) notBefore() (time.Time, error) {
	n, _, err := g.readNumber(notBeforeFile)
	if until := time.UnixMicro(n); err == nil && until.After(time.Now()) {
		return until, nil
	}
	return time.Time{}, err
}

// override returns the limit that Resize has set, 0 if it never has.
func (g *nameLock) override() (int, error) {
	n, ok, err := g.readNumber(limitFile)
	if err == nil && (!ok || 1 <= n && n <= driver.MaxLimit) {
		return int(n), nil
	}
	if err == nil || errors.Is(err, errDamaged) {
		return 0, fmt.Errorf("%w: %q is damaged: set the limit again with Resize, or remove the file to go by the limits of the requests", driver.ErrUnavailable, g.pathOf(limitFile))
	}
	return 0, err
}
