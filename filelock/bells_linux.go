package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// hang creates the FIFO of a waiter that is about to join. Other processes wake the waiter by
// writing a byte to it. The waiter opens both ends, so that writers do not block and a byte written
// before the waiter reads is not lost. It returns nil if there can be no FIFO; the waiter then
// polls.
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

// unhang removes a FIFO, which may be nil.
func unhang(d *folder, owner string, fifo *os.File) {
	if fifo != nil {
		_ = d.root.Remove(bellOf(owner))
		fifo.Close()
	}
}

// listen forwards the bytes of a FIFO to a channel until the FIFO is closed. Several bytes may be
// forwarded as one signal.
func listen(fifo *os.File, bell chan<- struct{}) {
	buf := make([]byte, 64)
	for {
		if _, err := fifo.Read(buf); err != nil {
			return
		}
		ringOwn(bell)
	}
}

// ring wakes the waiter whose FIFO is at path. It does not block, and writes to nothing but a FIFO.
func ring(path string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the FIFO or its process is gone
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		_, _ = unix.Write(fd, []byte{0}) // if the FIFO is full, signals are pending
	}
}
