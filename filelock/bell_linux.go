package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// hang makes the bell of a waiter that is about to join: a FIFO beside its ticket,
// into which anybody writes a byte to wake it. The waiter has both ends open, so
// nobody who rings has to wait, and a ring before the waiter listens is not lost.
// It is nil where there can be none; the waiter then looks by itself.
func (g *nameLock) hang(owner string) *os.File {
	base := bellOf(owner)
	if g.engine.deaf || unix.Mkfifo(g.path(base), uint32(g.engine.perm.file)) != nil {
		return nil
	}
	f, err := g.root.OpenFile(base, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = g.root.Remove(base)
		return nil
	}
	g.engine.perm.apply(f)
	return f
}

// unhang removes a bell, which may be nil.
func (g *nameLock) unhang(owner string, fifo *os.File) {
	if fifo != nil {
		_ = g.root.Remove(bellOf(owner))
		fifo.Close()
	}
}

// listen passes the rings of a bell on. It ends when the bell is closed.
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
