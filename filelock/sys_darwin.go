package filelock

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// network are the file systems whose flock works across hosts or is unreliable.
var network = []string{"nfs", "smbfs", "afpfs", "webdav", "ftp", "macfuse", "osxfuse", "fuse", "acfs", "vmhgfs"}

// statFS returns the name of dir's file system and whether it is a network one.
func statFS(dir string) (name string, isNetwork bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	return name, slices.Contains(network, name), nil
}

// stopped always returns false on this system: frozen waiters are detected only by the age of their
// stamps.
func stopped(int) bool { return false }

// flockOwners is not available on this system. Callers use the processes named in the tickets.
func flockOwners(*os.File) (pids []int, known bool) { return nil, false }

// renameNew renames a directory. The error is fs.ErrExist if the new name exists.
func renameNew(from, to string) error {
	if err := unix.RenamexNp(from, to, unix.RENAME_EXCL); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
