package filelock

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

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

// statFS returns the name of dir's file system and whether it is a network one.
func statFS(dir string) (name string, isNetwork bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if name, ok := network[uint32(st.Type)]; ok {
		return name, true, nil
	}
	return fmt.Sprintf("%#x", uint32(st.Type)), false, nil
}

// stopped reports whether a process of this host is stopped (by SIGSTOP or a debugger). In
// /proc/pid/stat the state follows the command, which is in parentheses and may contain
// parentheses.
func stopped(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && len(b) > i+2 && (b[i+2] == 'T' || b[i+2] == 't')
}

// flockOwners returns the processes that have a descriptor whose open file holds a flock on f.
// known is false if the kernel does not report it. Other descriptors of the same file do not count.
func flockOwners(f *os.File) (pids []int, known bool) {
	file, err := f.Stat()
	if err != nil {
		return nil, false
	}
	inode := fmt.Sprintf(":%d ", file.Sys().(*syscall.Stat_t).Ino)
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if ownsFlock(proc, file, inode) {
			if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, true
}

// ownsFlock looks for a line such as "lock: 1: FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF". The device
// number in it (fe:00) may differ from that of stat, as on btrfs, so the descriptor is compared
// too. Only descriptors with such a line are opened, because opening others may take long.
func ownsFlock(proc string, file os.FileInfo, inode string) bool {
	infos, _ := os.ReadDir(proc + "/fdinfo")
	for _, fd := range infos {
		b, err := os.ReadFile(proc + "/fdinfo/" + fd.Name())
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "lock:") && strings.Contains(line, "FLOCK") && strings.Contains(line, inode) {
				if info, err := os.Stat(proc + "/fd/" + fd.Name()); err == nil && os.SameFile(info, file) {
					return true
				}
			}
		}
	}
	return false
}

// renameNew renames a directory. The error is fs.ErrExist if the new name exists. A plain rename
// would replace an empty directory, which another process may be using.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
