package filelock

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

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

// halfMade begins the names of files and directories under construction, which become visible to
// the group by a rename. The next sweep removes those that a crash leaves behind.
const halfMade = ".new."

// step is directory.step.
func (p *perm) step(what string) {
	if p.pass != nil {
		p.pass(what)
	}
}

// check rejects a directory that should be shared with the group but is not, and one that is shared
// although no group was given: what this user created there would be inaccessible to the group.
func (p *perm) check(info os.FileInfo) error {
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

// trusts rejects what belongs to another user. In a shared directory, any user of the group may own
// it.
func (p *perm) trusts(uid int, path string) error {
	if p.group != "" || uid == os.Geteuid() || uid == 0 {
		return nil
	}
	if top, err := lookUp(p.top); err == nil {
		if owner, _, _ := ownerOf(top); owner == uid {
			return nil // the owner of the directory can change everything in it anyway
		}
	}
	return fmt.Errorf("%w: %q belongs to user %d; remove it, or share the directory with a group (?group=NAME)", driver.ErrConfig, path, uid)
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
