package filelock

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames a directory. The error is fs.ErrExist if the new name exists. A plain rename
// would replace an empty directory, which another process may be using.
func (d *folder) renameNew(from, to string) error {
	at, err := d.at(to)
	if err != nil {
		return err
	}
	if err := unix.Renameat2(at, from, at, to, unix.RENAME_NOREPLACE); err != nil {
		return &os.LinkError{Op: "rename", Old: d.pathOf(from), New: d.pathOf(to), Err: err}
	}
	return nil
}

// chmodMade adds to the mode of what this process has just created. The file cannot be opened for
// reading, because the umask has removed that right.
func chmodMade(at int, base string, kind, mode uint32) error {
	fd, err := openAt(at, base, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != kind, int(st.Uid) != os.Geteuid():
		return fs.ErrExist // another user has replaced it
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// fifo creates a FIFO and opens both of its ends.
func (d *folder) fifo(base string) (*os.File, error) {
	at, err := d.at(base)
	if err != nil {
		return nil, err
	}
	if err := unix.Mkfifoat(at, base, uint32(d.perm.file)); err != nil {
		return nil, err
	}
	err = d.usable(base, unix.S_IFIFO, 0o600)
	if err == nil {
		var fd int
		var st unix.Stat_t
		if fd, st, err = d.openKind(base, unix.O_RDWR, unix.S_IFIFO); err == nil {
			d.allow(fd, &st)
			return os.NewFile(uintptr(fd), d.pathOf(base)), nil
		}
	}
	_ = d.remove(base)
	return nil, err
}

// notify writes a byte into a FIFO. It does not block.
func (d *folder) notify(base string) {
	fd, _, err := d.openKind(base, unix.O_WRONLY, unix.S_IFIFO)
	if err != nil {
		return // the FIFO or its process is gone
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte{0}) // if the FIFO is full, signals are pending
}
