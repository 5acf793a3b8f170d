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

// DataRoot returns a directory for directories with the data of servers, to be given to
// os.MkdirTemp. It is one in memory if there is room, unless TMPDIR says where tests are to
// work: a server of a database begins as a thousand files, and some file systems take most
// of a second to make and to remove them.
func DataRoot() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &fs) != nil || fs.Type != tmpfs ||
		fs.Bavail*uint64(fs.Bsize) < enough {
		return ""
	}
	return memory
}
