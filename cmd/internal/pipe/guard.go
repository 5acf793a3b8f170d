//go:build unix

package pipe

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// Inheritor is an engine whose locks are file descriptors that processes can share.
type Inheritor interface {
	Inherit(l driver.Lease) ([]*os.File, error)
}

// Guard is a second process that has duplicates of the descriptors of all locks. If this process is
// killed, the kernel keeps the locks until the work under them has stopped. A guard that ends is
// replaced, and one that does not answer is killed. A nil Guard does nothing.
type Guard struct {
	engine Inheritor
	begin  func() *exec.Cmd

	mu   sync.Mutex // guards the fields below and is held during a request
	cmd  *exec.Cmd  // the guard
	link int        // a socket; what is written there has an id and the descriptors of its lock
	turn int        // counts the guards
	kept map[int64]*fencelock.Lock
}

// guardLink is the descriptor of the socket in the guard.
const guardLink = 3

// answerLimit is how long a guard may take to answer.
const answerLimit = 5 * time.Second

// StartGuard starts a guard. begin returns the command that calls RunGuard.
func StartGuard(engine Inheritor, begin func() *exec.Cmd) (*Guard, error) {
	g := &Guard{engine: engine, begin: begin, kept: map[int64]*fencelock.Lock{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g, g.start()
}

// start starts a process and gives it the descriptors of all locks. The caller holds mu.
func (g *Guard) start() error {
	pair, err := supervise.SocketPair()
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "guard")
	limit := unix.NsecToTimeval(int64(answerLimit))
	_ = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) // no socket refuses that
	cmd := g.begin()
	cmd.ExtraFiles = []*os.File{theirs} // guardLink
	err = cmd.Start()
	theirs.Close() // or a guard that ends would not be noticed
	if err != nil {
		unix.Close(pair[0])
		return err
	}
	g.turn++
	g.cmd, g.link = cmd, pair[0]
	turn := g.turn
	go func() { // ends with the guard
		_ = cmd.Wait()
		g.replace(turn)
	}()
	for id, lock := range g.kept {
		files, err := g.filesOf(lock)
		if err != nil {
			continue // the lock is lost
		}
		if err := g.ask(id, files); err != nil {
			return err
		}
	}
	return nil
}

// replace starts another guard, unless that has been done.
func (g *Guard) replace(turn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turn == turn {
		_ = g.restart()
	}
}

// restart starts another guard, and tries again later if that fails. The caller holds mu.
func (g *Guard) restart() error {
	unix.Close(g.link)
	g.link = -1
	err := g.start()
	if err != nil { // such as without memory for a process
		turn := g.turn
		time.AfterFunc(100*time.Millisecond, func() { g.replace(turn) })
	}
	return err
}

// Keep returns when the guard has the descriptors of a lock.
func (g *Guard) Keep(id int64, lock *fencelock.Lock) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	files, err := g.filesOf(lock)
	if err != nil {
		return err
	}
	g.kept[id] = lock
	if g.ask(id, files) != nil {
		err = g.restart() // which passes it on
	}
	if err != nil {
		delete(g.kept, id)
	}
	return err
}

// Free lets the guard close the descriptors of a lock.
func (g *Guard) Free(id int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.kept, id)
	_ = g.ask(id, nil) // a guard that has ended has none
}

// filesOf returns duplicates of the descriptors of a lock.
func (g *Guard) filesOf(lock *fencelock.Lock) ([]*os.File, error) {
	return g.engine.Inherit(driver.Lease{Name: lock.Name(), Owner: lock.Owner(), Token: lock.Token()})
}

// ask sends the guard an id with descriptors, which it keeps, or without, and closes them here. It
// returns when the guard has done it. The caller holds mu.
func (g *Guard) ask(id int64, files []*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			defer f.Close()
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(g.link, binary.LittleEndian.AppendUint64(nil, uint64(id)), rights, nil, 0); err != nil {
		return err
	}
	n, err := unix.Read(g.link, make([]byte, 1))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(g.link, make([]byte, 1))
	}
	if errors.Is(err, unix.EAGAIN) { // the time is over: somebody has stopped it
		_ = g.cmd.Process.Kill()
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return err
}

// RunGuard is the guard. If the other process ends while it has locks, RunGuard calls work, which
// returns when the work under these locks has stopped. Then this process must end.
func RunGuard(work func()) {
	kept := map[int64][]int{}
	for {
		id, fds, err := receive()
		if err != nil {
			break // the other process has ended
		}
		for _, fd := range kept[id] {
			unix.Close(fd)
		}
		if kept[id] = fds; fds == nil {
			delete(kept, id)
		}
		_, _ = unix.Write(guardLink, []byte{1})
	}
	if len(kept) > 0 {
		work()
	}
}

// StdinEnds returns when nobody has the other end of stdin any more.
func StdinEnds() {
	fd := int(os.Stdin.Fd())
	for requests := make([]byte, 4096); ; { // nobody answers them
		switch n, err := unix.Read(fd, requests); {
		case n > 0 || errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN): // the program made stdin so
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		default:
			return
		}
	}
}

// receive reads an id and the descriptors that come with it. The guard starts no process that could
// inherit them.
func receive() (id int64, fds []int, err error) {
	buf, oob := make([]byte, 8), make([]byte, 1024)
	n, m, _, _, err := unix.Recvmsg(guardLink, buf, oob, 0)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(guardLink, buf, oob, 0)
	}
	if err != nil || n < len(buf) {
		return 0, nil, errors.Join(err, io.EOF)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:m])
	for _, msg := range messages {
		more, err := unix.ParseUnixRights(&msg)
		if err == nil {
			fds = append(fds, more...)
		}
	}
	return int64(binary.LittleEndian.Uint64(buf)), fds, err
}
