//go:build linux || darwin

package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/driver"
)

// A folder is an open directory of an engine: the engine's directory, that of a name, or one of the
// directories whose names begin with a dot. One goroutine uses it.
//
// Another user may be able to write there, and may replace anything between two system calls. So
// all access below the engine's directory goes through the methods of folder, in the files
// folder*.go, and a test of the project refuses calls with paths in other files. The rules:
//
//   - Only the engine's directory is opened by a path, because its user has chosen that path. All
//     else is opened relative to an open directory, by a name of one element, and links are not
//     followed.
//   - A file is used only if it is a regular file, has no other hard link, and belongs to a trusted
//     user. A FIFO is used only to wake a waiter. Opening never waits.
//   - Removing and renaming concern a name in an open directory, and neither follows links.
//   - A path is used a second time only to compare what is there with an open file.
type folder struct {
	path     string // for messages and comparisons
	perm     *perm
	patience *patience // of the call that uses it
	f        *os.File
}

// openDirectory opens the directory at a path. The error is fs.ErrNotExist if there is none.
func openDirectory(path string, p *perm) (*folder, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &folder{path: path, perm: p, f: os.NewFile(uintptr(fd), path)}, nil
}

// sub opens a directory in the directory. The error is fs.ErrNotExist if there is none.
func (d *folder) sub(base string) (*folder, error) {
	at, err := d.at(base)
	if err != nil {
		return nil, err
	}
	fd, err := openAt(at, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, d.explain("open", base, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = d.perm.trusts(int(st.Uid), d.pathOf(base))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	path := d.pathOf(base)
	return &folder{path: path, perm: d.perm, patience: d.patience, f: os.NewFile(uintptr(fd), path)}, nil
}

// close closes the directory. d may be nil.
func (d *folder) close() {
	if d != nil {
		d.f.Close()
	}
}

// pathOf returns the path of a file, for messages and comparisons.
func (d *folder) pathOf(base string) string { return filepath.Join(d.path, base) }

// at returns the descriptor of the directory, for an operation on base, which must be the name of
// an entry.
func (d *folder) at(base string) (int, error) {
	if base == "" || base == "." || base == ".." || strings.Contains(base, "/") {
		return 0, fmt.Errorf("%w: %q is not the name of a file", driver.ErrInvalid, base)
	}
	return int(d.f.Fd()), nil
}

// openAt is openat(2).
func openAt(at int, name string, flag int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flag|unix.O_CLOEXEC|unix.O_NOCTTY, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openLeased is openAt, but gives a file server, such as Samba, some time to return a file lease
// (fcntl). The kernel asks for it at the first attempt to open the file.
func (d *folder) openLeased(at int, name string, flag int, mode uint32) (fd int, err error) {
	start, limit := time.Now(), d.patience.limit(leaseLimit)
	for ; ; time.Sleep(leaseLimit / 100) {
		if fd, err = openAt(at, name, flag, mode); !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
		if time.Since(start) >= limit {
			d.patience.spent(start)
			return fd, err
		}
	}
}

// openKind opens a file of a kind, S_IFREG or S_IFIFO, that any user could have put there. O_NONBLOCK
// keeps it from waiting for the other end of a FIFO or the holder of a file lease.
func (d *folder) openKind(base string, flag int, kind uint32) (fd int, st unix.Stat_t, err error) {
	at, err := d.at(base)
	if err != nil {
		return -1, st, err
	}
	for range 100 { // until the file is not replaced meanwhile
		if fd, err = d.openLeased(at, base, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, uint32(d.perm.file&0o600)); err != nil {
			return -1, st, d.explain("open", base, err)
		}
		d.perm.step("file")
		// A file whose only name is in this directory is not one of another directory. The name
		// and the number of names must be read at the same time: the number alone would also be 1
		// for a file that was linked here when it was opened, and no longer is.
		var opened unix.Stat_t
		err = unix.Fstat(fd, &opened)
		if err == nil {
			err = unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		same := err == nil && opened.Dev == st.Dev && opened.Ino == st.Ino
		if same {
			if err = d.acceptable(base, &st, kind); err == nil {
				return fd, st, nil
			}
		}
		unix.Close(fd)
		if err != nil && (!errors.Is(err, unix.ENOENT) || flag&unix.O_CREAT == 0) {
			return -1, st, d.explain("open", base, err)
		}
	}
	return -1, st, fmt.Errorf("%w: %q is replaced again and again by another program; leave the file in place", driver.ErrUnavailable, d.pathOf(base))
}

// acceptable returns an error unless the entry is of the kind, has one name and belongs to a trusted
// user.
func (d *folder) acceptable(base string, st *unix.Stat_t, kind uint32) error {
	switch {
	case uint32(st.Mode)&unix.S_IFMT != kind:
		return d.refuse(base, kindOf(st))
	case st.Nlink > 1:
		return d.refuse(base, "a file with several hard links")
	}
	return d.perm.trusts(int(st.Uid), d.pathOf(base))
}

// refuse returns the error about an entry that is not what it should be.
func (d *folder) refuse(base, what string) error {
	return fmt.Errorf("%w: %q is %s; remove it", driver.ErrConfig, d.pathOf(base), what)
}

// kindOf returns what an entry is, in words.
func kindOf(st *unix.Stat_t) string {
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		return "a file, where a directory belongs"
	case unix.S_IFDIR:
		return "a directory, where a file belongs"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// explain returns the error of an operation. If the cause is something that does not belong there,
// the error says so.
func (d *folder) explain(op, base string, err error) error {
	errno, plain := err.(unix.Errno) //nolint:errorlint // what is wrapped has been explained
	if !plain {
		return err
	}
	switch errno {
	case unix.EAGAIN: // never returned as it is, because errBusy has the same value
		return fmt.Errorf("%w: %q has a lease (fcntl) of another program; end that program", driver.ErrUnavailable, d.pathOf(base))
	case unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENXIO, unix.ENODEV, unix.EOPNOTSUPP, unix.EPERM:
		var st unix.Stat_t
		if unix.Fstatat(int(d.f.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && (errno != unix.EPERM || uint32(st.Mode)&unix.S_IFMT == unix.S_IFDIR) {
			return d.refuse(base, kindOf(&st))
		}
	}
	return &fs.PathError{Op: op, Path: d.pathOf(base), Err: errno}
}

// openFile opens a regular file that any user could have put there. With os.O_CREATE it creates a
// missing one. The error is fs.ErrNotExist if there is none.
func (d *folder) openFile(base string, flag int) (*os.File, error) {
	create := flag&os.O_CREATE != 0
	if create && d.perm.group != "" {
		if err := d.makeFile(base); err != nil {
			return nil, err
		}
		flag &^= os.O_CREATE
	}
	fd, st, err := d.openKind(base, flag, unix.S_IFREG)
	if err != nil {
		return nil, err
	}
	if create {
		d.allow(fd, &st)
	}
	return os.NewFile(uintptr(fd), d.pathOf(base)), nil
}

// makeFile creates an empty file, unless one exists. The file appears with its mode, for the same
// reason as a directory; see mkdir.
func (d *folder) makeFile(base string) error {
	if _, err := d.stat(base); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := halfMade + uuid.NewString()
	f, err := d.createFile(temp)
	if err != nil {
		return err
	}
	f.Close()
	d.perm.step("made")
	at := int(d.f.Fd())
	err = unix.Linkat(at, temp, at, base, 0) // not a rename, which would replace a file created meanwhile
	if removed := d.remove(temp); err == nil {
		err = removed
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // another process has created it, or has removed the temporary file
	}
	return d.explain("link", base, err)
}

// createFile creates a file that must not exist. Its mode does not depend on the umask.
func (d *folder) createFile(base string) (*os.File, error) {
	at, err := d.at(base)
	if err != nil {
		return nil, err
	}
	fd, err := openAt(at, base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(d.perm.file&0o600))
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%w: %q is in the way (%w); remove it", driver.ErrConfig, d.pathOf(base), err)
	}
	if err != nil {
		return nil, d.explain("create", base, err)
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		d.allow(fd, &st)
	}
	return os.NewFile(uintptr(fd), d.pathOf(base)), nil
}

// allow gives the rights that the umask removed back to an open file.
func (d *folder) allow(fd int, st *unix.Stat_t) {
	want, has := uint32(d.perm.file), uint32(st.Mode)&0o777
	if d.perm.group == "" {
		has &= want // only more rights than these are no fault
	}
	if has != want {
		_ = unix.Fchmod(fd, want) // if it fails, users without access get an error
	}
}

// read returns the content of a file, but no more than limit bytes.
func (d *folder) read(base string, limit int64) ([]byte, error) {
	f, err := d.openFile(base, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// mkdir creates a directory, whose mode does not depend on the umask. The error is fs.ErrExist if
// the name is taken. A directory of a group appears under its name with its group and mode:
// processes that found it before would be refused, and if its creator died in between they would
// be refused for ever.
func (d *folder) mkdir(base string) error {
	at, err := d.at(base)
	if err != nil {
		return err
	}
	temp := base
	if d.perm.group != "" {
		temp = halfMade + uuid.NewString()
	}
	if err := unix.Mkdirat(at, temp, 0o700); err != nil {
		return d.explain("mkdir", temp, err)
	}
	err = d.usable(temp, unix.S_IFDIR, 0o700)
	if err == nil && d.perm.group != "" {
		if err = d.share(temp); err == nil {
			err = d.renameNew(temp, base)
		}
	}
	if err != nil {
		_ = unix.Unlinkat(at, temp, unix.AT_REMOVEDIR)
	}
	return err
}

// share gives a directory that was just created to the group.
func (d *folder) share(base string) error {
	gid, err := lookupGroup(d.perm.group)
	if err != nil {
		return err
	}
	made, err := d.sub(base)
	if err != nil {
		return err
	}
	defer made.close()
	info, err := made.f.Stat()
	if uid, _, _ := ownerOf(info); err == nil && uid != os.Geteuid() {
		err = d.refuse(base, "not the directory that was created there")
	}
	if err == nil {
		err = made.f.Chown(-1, gid)
	}
	d.perm.step("made")
	if err == nil {
		err = made.f.Chmod(d.perm.dir) // independent of the umask
	}
	return err
}

// usable gives the rights that the umask removed back to what was just created.
func (d *folder) usable(base string, kind, mode uint32) error {
	var st unix.Stat_t
	at := int(d.f.Fd())
	err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && uint32(st.Mode)&mode != mode {
		err = chmodMade(at, base, kind, mode)
	}
	return d.explain("chmod", base, err)
}

// makeDirectory creates the directory at a path, and its parents, durably. Only the directory itself
// belongs to the group, not its parents.
func makeDirectory(path string, p *perm) error {
	if d, err := openDirectory(path, p); !errors.Is(err, fs.ErrNotExist) {
		d.close()
		return err
	}
	private := newPerm(path, "")
	if err := makeDirectory(filepath.Dir(path), &private); err != nil {
		return err
	}
	above, err := openDirectory(filepath.Dir(path), p)
	if err != nil {
		return err
	}
	defer above.close()
	if err := above.mkdir(filepath.Base(path)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return above.sync()
}

// An entry describes what is in a directory.
type entry struct {
	dir      bool
	modified time.Time
}

// stat describes an entry. The error is fs.ErrNotExist if there is none.
func (d *folder) stat(base string) (entry, error) {
	at, err := d.at(base)
	if err != nil {
		return entry{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return entry{}, d.explain("stat", base, err)
	}
	return entry{dir: uint32(st.Mode)&unix.S_IFMT == unix.S_IFDIR, modified: time.Unix(st.Mtim.Unix())}, nil
}

// names returns the names of all entries, in order.
func (d *folder) names() ([]string, error) {
	if _, err := d.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := d.f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// list returns the names of all entries of a directory in the directory.
func (d *folder) list(base string) ([]string, error) {
	sub, err := d.sub(base)
	if err != nil {
		return nil, err
	}
	defer sub.close()
	return sub.names()
}

// remove removes a file. The error is fs.ErrNotExist if there is none.
func (d *folder) remove(base string) error {
	at, err := d.at(base)
	if err != nil {
		return err
	}
	return d.explain("remove", base, unix.Unlinkat(at, base, 0))
}

// removeDir removes a directory and the files in it, but no directories in it.
func (d *folder) removeDir(base string) error {
	at, err := d.at(base)
	if err != nil {
		return err
	}
	if sub, err := d.sub(base); err == nil {
		names, _ := sub.names()
		for _, name := range names {
			_ = sub.remove(name)
		}
		sub.close()
	}
	return d.explain("remove", base, unix.Unlinkat(at, base, unix.AT_REMOVEDIR))
}

// rename renames a file, and replaces a file with the new name.
func (d *folder) rename(from, to string) error {
	_, err := d.at(from)
	if err != nil {
		return err
	}
	at, err := d.at(to)
	if err != nil {
		return err
	}
	return d.explain("rename", to, unix.Renameat(at, from, at, to))
}

// sync makes the entries of the directory durable.
func (d *folder) sync() error { return d.f.Sync() }

// lookUp returns what the path of an engine's directory leads to.
func lookUp(path string) (os.FileInfo, error) { return os.Stat(path) }

// vanished reports whether path certainly no longer leads to the open file f. An error, such as a
// directory that is temporarily inaccessible, proves nothing. It looks at the path because that is
// what the next process opens. A link on the way changes nothing: that process refuses it.
func vanished(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(mine, now), err
}
