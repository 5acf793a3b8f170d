package hosttest

import (
	"os"
	"syscall"
)

const (
	memory = "/dev/shm"
	tmpfs  = 0x01021994 // its magic number; see statfs(2)
	enough = 4 << 30    // bytes: for servers of several tests, and of several packages
)

// DataRoot returns a directory for servers' data directories, as an argument for os.MkdirTemp. It
// is in memory if there is space, unless TMPDIR is set: a database server begins with a thousand
// files, which some file systems take most of a second to create and remove.
func DataRoot() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &fs) != nil || fs.Type != tmpfs ||
		fs.Bavail*uint64(fs.Bsize) < enough {
		return ""
	}
	return memory
}
