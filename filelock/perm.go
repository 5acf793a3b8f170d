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

// A perm determines who may use the files of an engine: this user, or also a group.
type perm struct {
	top   string // the directory of the engine
	group string // empty: this user only
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

// makeDirs creates the engine's directory and its parents, durably. Only the directory itself
// belongs to the group, not its parents.
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

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// halfMade begins the names of files and directories under construction, which become visible to
// the group by a rename. The next sweep removes those that a crash leaves behind.
const halfMade = ".new."

// mkdir creates a directory. The error is fs.ErrExist if there is one. A directory of a group
// appears under its name with its owner and mode: processes that found it before would be refused,
// and if its creator died in between they would be refused for ever.
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
		err = os.Chmod(temp, p.dir) // independent of the umask
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

// apply gives the group access to a new file, whatever the umask is.
func (p *perm) apply(f *os.File) {
	if p.group != "" {
		_ = f.Chmod(p.file) // if it fails, users without access get an error
	}
}

// check rejects a directory that should be shared with the group but is not, and one that is shared
// although no group was given: what this user created there would be inaccessible to the group.
func (p *perm) check() error {
	info, err := os.Stat(p.top)
	if err != nil {
		return err
	}
	_, owner, ok := ownerOf(info)
	if p.group == "" {
		if shared := os.ModeSetgid | 0o070; ok && info.Mode()&shared == shared {
			return fmt.Errorf("%w: %q is shared with the group %d; add ?group=%d to the URL (Config.Group), or choose another directory", driver.ErrConfig, p.top, owner, owner)
		}
		return nil
	}
	gid, err := lookupGroup(p.group)
	if err != nil {
		return err
	}
	if want := p.dir; ok && (owner != gid || info.Mode()&want != want) {
		return fmt.Errorf("%w: %q is not shared with the group %s; run chgrp %s and chmod 2770 on that directory", driver.ErrConfig, p.top, p.group, p.group)
	}
	return nil
}

// owned rejects a file or directory of another user. In a shared directory, any user of the group
// may own it.
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
			return nil // the owner of the directory can change everything in it anyway
		}
	}
	return fmt.Errorf("%w: %q belongs to user %d; remove it, or share the directory with a group (?group=NAME)", driver.ErrConfig, f.Name(), uid)
}

// lookupGroup returns the number of a group, which may be given as a number.
func lookupGroup(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%w: the group %q was not found: %w", driver.ErrConfig, name, err)
	}
	return strconv.Atoi(g.Gid)
}
