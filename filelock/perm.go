package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"

	"github.com/fencelock/fencelock/driver"
)

// A perm is who may use the files of an engine: this user, or a group besides.
type perm struct {
	top   string // the directory of the engine
	group string // empty for this user alone
	dir   os.FileMode
	file  os.FileMode

	pass func(what string) // for tests; see directory.pass
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

// halfMade begins the names of directories and files that are being made, and become
// visible to the group by a rename. The next sweep removes what a crash leaves of them.
const halfMade = ".new."

// mkdir makes one directory, and is fs.ErrExist if there is one. That of a group appears
// under its name with its owner and its mode: whoever came across it before would be
// refused, and everybody for good if its maker died in between.
func (p *perm) mkdir(dir string) error {
	if p.group == "" {
		return os.Mkdir(dir, 0o700)
	}
	gid, err := lookupGroup(p.group)
	if err != nil {
		return err
	}
	at := p.top
	if dir == p.top {
		at = filepath.Dir(dir)
	}
	temp := filepath.Join(at, halfMade+uuid.NewString())
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	err = os.Lchown(temp, -1, gid)
	p.step("made")
	if err == nil {
		err = os.Chmod(temp, p.dir) // the umask has no say in it
	}
	if err == nil {
		err = renameNew(temp, dir)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// step is directory.step.
func (p *perm) step(what string) {
	if p.pass != nil {
		p.pass(what)
	}
}

// apply lets the group use a file that was just made, whatever the umask says.
func (p *perm) apply(f *os.File) {
	if p.group != "" {
		_ = f.Chmod(p.file) // who cannot use it says so
	}
}

// check refuses a directory that the group is to share and cannot, and one that a group
// shares if none was given: what this user made there would be closed to the group.
func (p *perm) check() error {
	info, err := os.Stat(p.top)
	if err != nil {
		return err
	}
	_, owner, ok := ownerOf(info)
	if p.group == "" {
		if shared := os.ModeSetgid | 0o070; ok && info.Mode()&shared == shared {
			return fmt.Errorf("%w: %q is shared with the group %d; say so (?group=%d), or choose another directory", driver.ErrConfig, p.top, owner, owner)
		}
		return nil
	}
	gid, err := lookupGroup(p.group)
	if err != nil {
		return err
	}
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
