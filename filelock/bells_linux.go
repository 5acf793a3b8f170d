package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// hang makes the bell of a waiter that is about to join: a FIFO beside its ticket,
// into which anybody writes a byte to wake it. The waiter has both ends open, so
// nobody who rings has to wait, and a ring before the waiter listens is not lost.
// It is nil where there can be none; the waiter then looks by itself.
func (b *bells) hang(d *folder, owner string) *os.File {
	base := bellOf(owner)
	if b.deaf || unix.Mkfifo(d.pathOf(base), uint32(d.perm.file)) != nil {
		return nil
	}
	f, err := d.root.OpenFile(base, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = d.root.Remove(base)
		return nil
	}
	d.perm.apply(f)
	return f
}

// unhang removes a bell, which may be nil.
func unhang(d *folder, owner string, fifo *os.File) {
	if fifo != nil {
		_ = d.root.Remove(bellOf(owner))
		fifo.Close()
	}
}

// listen passes the rings of a bell on. It ends when the bell is closed. Several rings at
// once are one.
func listen(fifo *os.File, bell chan<- struct{}) {
	buf := make([]byte, 64)
	for {
		if _, err := fifo.Read(buf); err != nil {
			return
		}
		ringOwn(bell)
	}
}

// ring wakes the waiter whose bell has a path. It never blocks, and writes into
// nothing but a FIFO.
func ring(path string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it is gone, or its process is
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		_, _ = unix.Write(fd, []byte{0}) // a full one has been rung often enough
	}
}
