package filelock

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// notifyOf selects the events of a directory: files that are added and removed. It does not include
// the stamps of waiting tickets, which would wake every holder and watch of the name.
const notifyOf = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// A notifier is one inotify instance. One goroutine calls read. The other methods are called under
// the watcher's mutex.
type notifier struct {
	fd  int
	f   *os.File // the same, for blocking reads
	buf [16 << 10]byte
}

func newNotifier() (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &notifier{fd: fd, f: os.NewFile(uintptr(fd), "inotify")}, nil
}

func (n *notifier) add(path string) (wd int, err error) {
	return unix.InotifyAddWatch(n.fd, path, notifyOf)
}

func (n *notifier) remove(wd int) { _, _ = unix.InotifyRmWatch(n.fd, uint32(wd)) }

// close closes the instance, which ends read.
func (n *notifier) close() { n.f.Close() }

// read blocks until there are events.
func (n *notifier) read() ([]event, error) {
	size, err := n.f.Read(n.buf[:])
	if err != nil {
		return nil, err
	}
	var events []event
	for b := n.buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
		mask, length := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		end := unix.SizeofInotifyEvent + length
		events = append(events, event{
			wd:       int(int32(binary.NativeEndian.Uint32(b))),
			base:     string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00")),
			gone:     mask&(unix.IN_IGNORED|unix.IN_MOVE_SELF) != 0,
			overflow: mask&unix.IN_Q_OVERFLOW != 0,
		})
		b = b[end:]
	}
	return events, nil
}
