package filelock

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// network names the file systems whose flock crosses hosts, or pretends to.
var network = []string{"nfs", "smbfs", "afpfs", "webdav", "ftp", "macfuse", "osxfuse", "fuse", "acfs", "vmhgfs"}

// statFS names the file system of dir and tells whether it is a network one.
func statFS(dir string) (name string, isNetwork bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	return name, slices.Contains(network, name), nil
}

// stopped is always false: here a frozen waiter shows by its age only.
func stopped(int) bool { return false }

// flockOwners knows nothing here; the recorded process is used instead.
func flockOwners(*os.File) (pids []int, known bool) { return nil, false }

// renameNew renames a directory, and is fs.ErrExist if there is something of the new name.
func renameNew(from, to string) error {
	if err := unix.RenamexNp(from, to, unix.RENAME_EXCL); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
