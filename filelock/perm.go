package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

// A perm is who may use the files of an engine: this user, or a group besides.
type perm struct {
	top   string // the directory of the engine
	group string // empty for this user alone
	dir   os.FileMode
	file  os.FileMode
}

func newPerm(top, group string) perm {
	if group == "" {
		return perm{top: top, dir: 0o700, file: 0o600}
	}
	return perm{top: top, group: group, dir: 0o770 | os.ModeSetgid, file: 0o660}
}

// makeDirs creates the directory of the engine and its parents, and makes it
// survive a power cut when it is new. The group gets the directory itself, not its parents.
func (p *perm) makeDirs() error {
	if _, err := os.Stat(p.top); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.top), 0o700); err != nil {
		return err
	}
	if err := p.mkdir(p.top); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(p.top))
}

// syncDir makes the entries of a directory survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// mkdir makes one directory. That of a group gets its owner before its mode, so that
// nobody else's group can use it for a moment.
func (p *perm) mkdir(dir string) error {
	if p.group == "" {
		return os.Mkdir(dir, 0o700)
	}
	gid, err := lookupGroup(p.group)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Lchown(dir, -1, gid); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return os.Chmod(dir, p.dir) // the umask has no say in it
}

// apply lets the group use a file that was just made, whatever the umask says.
func (p *perm) apply(f *os.File) {
	if p.group != "" {
		_ = f.Chmod(p.file) // who cannot use it says so
	}
}

// check refuses a directory that the group is to share and cannot.
func (p *perm) check() error {
	if p.group == "" {
		return nil
	}
	gid, err := lookupGroup(p.group)
	if err != nil {
		return err
	}
	info, err := os.Stat(p.top)
	if err != nil {
		return err
	}
	_, owner, ok := ownerOf(info)
	if want := p.dir; ok && (owner != gid || info.Mode()&want != want) {
		return fmt.Errorf("%w: %q is not shared with the group %s; chgrp %s and chmod 2770 that directory", driver.ErrConfig, p.top, p.group, p.group)
	}
	return nil
}

// owned refuses a file or directory that another user has put there. What a
// group shares belongs to any of its users.
func (p *perm) owned(f *os.File) error {
	info, err := f.Stat()
	if err != nil || p.group != "" {
		return err
	}
	uid, _, ok := ownerOf(info)
	if !ok || uid == os.Geteuid() || uid == 0 {
		return nil
	}
	if top, err := os.Stat(p.top); err == nil {
		if owner, _, _ := ownerOf(top); owner == uid {
			return nil // may do here what it likes anyway
		}
	}
	return fmt.Errorf("%w: %q belongs to user %d; remove it, or share the directory with a group (?group=NAME)", driver.ErrConfig, f.Name(), uid)
}

// lookupGroup returns the number of a group, which may be given as such.
func lookupGroup(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%w: no group %q: %w", driver.ErrConfig, name, err)
	}
	return strconv.Atoi(g.Gid)
}
