package filelock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// The files of a name's folder besides tickets. Numbers have a fixed width and are overwritten in
// place, so that a crash leaves the old or the new one.
const (
	lockFile      = "lock"       // its flock excludes flock(1), which ignores tickets
	tokenFile     = "token"      // the last token
	notBeforeFile = "not-before" // when the minimum hold ends, in microseconds since 1970

	// limitFile has the limit set by Resize. Unlike the numbers that every acquisition changes, it
	// is replaced as a whole, so that a crash leaves the old limit or the new one.
	limitFile = "limit"

	// nameFile has the exact name.
	nameFile = "name"

	// floorFile is in the top directory. Its number is at least every token of names that were
	// removed.
	floorFile = ".floor"
)

// lockFor takes the flock of the lock file, by which this engine and flock(1) exclude each other.
// The error is errBusy if it is taken.
func (g *nameLock) lockFor(mode driver.Mode) (*os.File, error) {
	how := lockExclusive
	if mode == driver.Shared {
		how = lockShared
	}
	for range 10 { // another process may be replacing the file
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
	return nil, fmt.Errorf("%q is replaced again and again by another program; leave the file in place", g.pathOf(lockFile))
}

// locked opens the lock file and reports whether its flock is taken, with or without a ticket. It
// leaves the file unlocked. f is nil if the file cannot be opened.
func (g *nameLock) locked() (f *os.File, busy bool) {
	f, err := g.openFile(lockFile, os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	busy = errors.Is(flock(f, lockExclusive), errBusy)
	_ = flock(f, unlock)
	return f, busy
}

// issue returns a token greater than all earlier ones. The token is durable once the file, which
// may be nil, has been settled. The tokens of a new name, or of one that had been removed, start
// above the number in floorFile.
func (g *nameLock) issue() (int64, *os.File, error) {
	last, old, err := g.readNumber(tokenFile)
	if err == nil && !old {
		last, _, err = g.up.readNumber(floorFile)
	}
	if err != nil {
		return 0, nil, err
	}
	token := max(last+1, time.Now().UnixMicro())
	f, err := g.writeNumber(tokenFile, token)
	if err == nil && !old {
		err = g.up.sync() // the process that created the folder may not have synced it
	}
	return token, f, err
}

// notBefore returns when the minimum hold ends; the zero time if there is none.
func (g *nameLock) notBefore() (time.Time, error) {
	n, _, err := g.readNumber(notBeforeFile)
	if until := time.UnixMicro(n); err == nil && until.After(time.Now()) {
		return until, nil
	}
	return time.Time{}, err
}

// override returns the limit set by Resize, 0 if there is none.
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
