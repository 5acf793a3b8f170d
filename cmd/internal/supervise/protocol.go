//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillReserve is how long before the deadline a kill starts, so that it is complete in time.
const KillReserve = 100 * time.Millisecond

// order is a line from the wrapper to its watchdog. A zero field has no effect.
type order struct {
	Start  *start        `json:",omitempty"` // the first order, and only that
	Until  time.Duration `json:",omitempty"` // when to kill, by bootTime
	Signal unix.Signal   `json:",omitempty"`
	All    bool          `json:",omitempty"` // send Signal to all processes, not only to the group
	Kill   bool          `json:",omitempty"`
	Listen bool          `json:",omitempty"` // the command has got the terminal; see listener.go
}

// reported reports whether the watchdog sends report.Done when it has carried out the order.
func (o order) reported() bool { return o.Signal != 0 || o.Kill }

// start is the command. Its strings are bytes, since JSON cannot represent strings that are not UTF-8.
type start struct {
	Path          []byte
	Args, Env     []byte   // see joined
	Own           []string // variables that get the number of the command's process; see service.go
	Foreground    bool     // give the command the terminal
	Lock          []int    // descriptors of the lock
	IgnoreLoss    bool     // kill nothing when the wrapper dies
	IgnoreOrphans bool     // wait only for the command itself, which does not inherit Lock
}

// report is a line from the watchdog to its wrapper.
type report struct {
	Ready   bool             `json:",omitempty"` // the first report: signals do not end the watchdog any more
	Started int              `json:",omitempty"` // the command's process
	Failed  string           `json:",omitempty"` // why the command was not started
	Errno   syscall.Errno    `json:",omitempty"` // of Failed, if the kernel returned one
	Stopped unix.Signal      `json:",omitempty"` // the signal that stopped the command itself
	Listens bool             `json:",omitempty"` // from now on Typed is reported
	Typed   unix.Signal      `json:",omitempty"` // the terminal has sent this signal to the command
	Ended   *unix.WaitStatus `json:",omitempty"` // how the command itself ended
	Left    int              `json:",omitempty"` // how many processes the command left behind
	Refused unix.Signal      `json:",omitempty"` // this signal could not be sent to Denied processes
	Denied  int              `json:",omitempty"`
	Done    bool             `json:",omitempty"` // an order with Signal or Kill was carried out, once for each
	Empty   bool             `json:",omitempty"` // the last report: no process of the command is left
	Late    bool             `json:",omitempty"` // with Empty: the watchdog killed the command at the deadline
}

// link is one end of the socket between a wrapper and its watchdog.
type link struct{ conn *os.File }

// SocketPair returns both ends of a socket. No other program inherits them.
func SocketPair() (pair [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	return pair, os.NewSyscallError("socketpair", err)
}

// newLink returns both ends of a socket.
func newLink() (ours, theirs *os.File, err error) {
	pair, err := SocketPair()
	if err != nil {
		return nil, nil, err
	}
	_ = unix.SetNonblock(pair[0], true) // so that writes have deadlines
	return os.NewFile(uintptr(pair[0]), "watchdog"), os.NewFile(uintptr(pair[1]), "wrapper"), nil
}

// send sends a line. If the other process does not read, it returns os.ErrDeadlineExceeded. If the
// other process has ended, it returns nil, since the reader of this end detects that.
func (l link) send(line any) error { return l.sendBy(time.Now().Add(sendLimit), line) }

// sendLimit is short, since the lease of a lost lock may end KillReserve after an order.
const sendLimit = KillReserve / 4

// sendBy is send with a deadline; zero means none. If this process was frozen, the deadline may have
// passed before the write, so sendBy gives up only if the socket is full then.
func (l link) sendBy(limit time.Time, line any) error {
	text, _ := json.Marshal(line) // orders and reports are always valid
	for text = append(text, '\n'); len(text) > 0; limit = time.Now().Add(sendLimit) {
		_ = l.conn.SetWriteDeadline(limit) // sockets have deadlines
		n, err := l.conn.Write(text)
		text = text[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if n, err = l.writeNow(text); errors.Is(err, unix.EAGAIN) {
				return os.ErrDeadlineExceeded
			}
			text = text[max(n, 0):]
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// writeNow writes as much as there is room for. The error is EAGAIN if the socket is full. Only an
// attempt shows that: poll(2) reports room, and wakes a writer, only when most of a full socket has
// been read.
func (l link) writeNow(text []byte) (n int, err error) {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	if closed := raw.Control(func(fd uintptr) { n, err = unix.Write(int(fd), text) }); closed != nil {
		return 0, closed
	}
	return n, err
}

// lines returns the lines that arrive on conn. The channel is closed at the end of conn, at a
// malformed line, or when done is closed.
func lines[T any](conn io.Reader, done <-chan struct{}) <-chan T {
	ch := make(chan T)
	go func() {
		defer close(ch)
		for d := json.NewDecoder(conn); ; {
			var line T
			if d.Decode(&line) != nil {
				return
			}
			select {
			case ch <- line:
			case <-done:
				return
			}
		}
	}()
	return ch
}

// joined joins the arguments or the environment of a program, whose strings have no zero bytes. They are
// not empty lists.
func joined(list []string) []byte { return []byte(strings.Join(list, "\x00")) }

// split is the inverse of joined.
func split(list []byte) []string { return strings.Split(string(list), "\x00") }
