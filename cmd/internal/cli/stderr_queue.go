//go:build unix

package cli

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/asyncwriter"
)

const (
	maxQueued   = 64 << 10    // bytes in the queue; more are discarded
	lastMessage = time.Second // how long the exit waits for stderr to be read
)

// stderrQueue writes to stderr and never blocks: a full pipe, a stopped terminal or a reader that is gone
// must not delay the end of a command.
type stderrQueue struct {
	out *os.File
	*asyncwriter.Writer
}

func newStderrQueue(out *os.File) *stderrQueue {
	return &stderrQueue{out, asyncwriter.New(unfailing{out}, maxQueued)}
}

// unfailing loses what cannot be written, and tries again with the next message: a disk may have been full.
type unfailing struct{ to *os.File }

// Write writes p.
func (u unfailing) Write(p []byte) (int, error) {
	_, _ = u.to.Write(p)
	return len(p), nil
}

// fileOf returns the file that w writes to, or nil, as for a buffer in a test.
func fileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *os.File:
		return w
	case dataWriter:
		return fileOf(w.to)
	case *stderrQueue:
		return w.out
	}
	return nil
}

// isTTY reports whether w is a terminal.
func isTTY(w io.Writer) bool { return Columns(w) >= 0 }

// Columns returns the width of the terminal w: 0 if the terminal does not report it, -1 if w is
// not a terminal. It queries the terminal each time, since the window may be resized.
func Columns(w io.Writer) int {
	f := fileOf(w)
	if f == nil {
		return -1
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return -1
	}
	return int(size.Col)
}
