package filelock

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// network are the file systems whose flock works across hosts or is unreliable.
var network = []string{"nfs", "smbfs", "afpfs", "webdav", "ftp", "macfuse", "osxfuse", "fuse", "acfs", "vmhgfs"}

// statFS returns the name of a directory's file system and whether it is a network one.
func statFS(dir *os.File) (name string, isNetwork bool, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return "", false, &os.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	return name, slices.Contains(network, name), nil
}

// stopped always returns false on this system: frozen waiters are detected only by the age of their
// stamps.
func stopped(int) bool { return false }

// flockOwners is not available on this system. Callers use the processes named in the tickets.
func flockOwners(*os.File) (pids []int, known bool) { return nil, false }

// commandOf is not needed on this system: flockOwners finds no processes.
func commandOf(int) string { return "" }
