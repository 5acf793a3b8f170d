package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames a directory. The error is fs.ErrExist if the new name exists.
func (d *folder) renameNew(from, to string) error {
	at, err := d.at(to)
	if err != nil {
		return err
	}
	if err := unix.RenameatxNp(at, from, at, to, unix.RENAME_EXCL); err != nil {
		return &os.LinkError{Op: "rename", Old: d.pathOf(from), New: d.pathOf(to), Err: err}
	}
	return nil
}

// chmodMade adds to the mode of what this process has just created. If another user has replaced
// it, the change concerns another file of this user at most: links are not followed.
func chmodMade(at int, base string, _, mode uint32) error {
	return unix.Fchmodat(at, base, mode, unix.AT_SYMLINK_NOFOLLOW)
}
