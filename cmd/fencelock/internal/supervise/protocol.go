//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillReserve is how long the kill itself may take: it begins so long before the deadline.
const KillReserve = 100 * time.Millisecond

// order is one line from the wrapper to its watchdog. A field that is zero orders nothing.
type order struct {
	Start  *start        `json:",omitempty"` // the first order, and only that
	Until  time.Duration `json:",omitempty"` // kill then, on the clock of bootTime
	Signal unix.Signal   `json:",omitempty"`
	All    bool          `json:",omitempty"` // the signal is for everything and not for the group alone
	Kill   bool          `json:",omitempty"`
}

// start is the command. Its words are bytes, since JSON would change those that are not UTF-8.
type start struct {
	Path          string
	Args, Env     [][]byte
	Foreground    bool  // bring the command to the foreground of the terminal
	Lock          []int // descriptors that keep the lock
	IgnoreLoss    bool  // nothing is killed when the wrapper dies
	IgnoreOrphans bool  // only the command itself counts, and it does not get Lock
}

// report is one line from the watchdog to its wrapper.
type report struct {
	Started int              `json:",omitempty"` // the command's process
	Failed  string           `json:",omitempty"` // why it was not started
	Errno   syscall.Errno    `json:",omitempty"` // of Failed, where the kernel said it
	Stopped unix.Signal      `json:",omitempty"` // what has stopped the command itself
	Ended   *unix.WaitStatus `json:",omitempty"` // how it ended
	Left    int              `json:",omitempty"` // how many it left behind
	Refused unix.Signal      `json:",omitempty"` // could not be sent to Denied processes
	Denied  int              `json:",omitempty"`
	Empty   bool             `json:",omitempty"` // the last report: nothing of the command is left
	Late    bool             `json:",omitempty"` // with Empty: the watchdog killed it at the deadline
}

// link is one end of the socket between a wrapper and its watchdog.
type link struct{ conn *os.File }

// newLink returns the two ends of a socket. No other program inherits them.
func newLink() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that writes have deadlines
	return os.NewFile(uintptr(pair[0]), "watchdog"), os.NewFile(uintptr(pair[1]), "wrapper"), nil
}

// send sends one line. The other end reads at once, unless it is frozen: then send gives up with
// os.ErrDeadlineExceeded. The end of the other process is no error here, since it is noticed by
// reading.
func (l link) send(line any) error { return l.sendBy(time.Now().Add(KillReserve), line) }

// sendBy is send with a limit of its own; zero is none.
func (l link) sendBy(limit time.Time, line any) error {
	_ = l.conn.SetWriteDeadline(limit) // sockets have deadlines
	err := json.NewEncoder(l.conn).Encode(line)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// lines returns the lines that come on conn, until its end or nonsense. Its goroutine ends
// then, or when done is closed.
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

// words turns the arguments or the environment of a program into bytes.
func words(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// strung is the inverse of words.
func strung(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}
