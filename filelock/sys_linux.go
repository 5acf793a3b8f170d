package filelock

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// network are the file systems whose flock works across hosts or is unreliable, by the magic
// numbers of statfs(2).
var network = map[uint32]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x01021997: "9p",
	0x65735546: "fuse",
	0x00c36400: "ceph",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x5346414f: "afs",
	0x6b414653: "kafs",
	0x73757245: "coda",
	0x7461636f: "ocfs2",
	0x01161970: "gfs2",
	0x19830326: "beegfs",
	0x564c:     "ncp",
	0x786f4256: "vboxsf",
}

// statFS returns the name of a directory's file system and whether it is a network one.
func statFS(dir *os.File) (name string, isNetwork bool, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return "", false, &os.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	if name, ok := network[uint32(st.Type)]; ok {
		return name, true, nil
	}
	return fmt.Sprintf("%#x", uint32(st.Type)), false, nil
}
