//go:build unix

package cli

import (
	"bytes"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxQueued   = 256         // messages in the queue; more are discarded
	lastMessage = time.Second // how long the exit waits for stderr to be read
)

// stderrQueue writes to stderr and never blocks: a full pipe, a stopped terminal or a reader that is gone
// must not delay the end of a command.
type stderrQueue struct {
	out   *os.File
	queue chan func() // each function writes a message
}

// newStderrQueue returns a stderrQueue. Its goroutine ends with the process.
func newStderrQueue(out *os.File) *stderrQueue {
	t := &stderrQueue{out: out, queue: make(chan func(), maxQueued)}
	go func() {
		for next := range t.queue {
			next()
		}
	}()
	return t
}

// Write queues p. It discards p if too many messages are queued. It never fails.
func (t *stderrQueue) Write(p []byte) (int, error) {
	text := bytes.Clone(p)
	select {
	case t.queue <- func() { _, _ = t.out.Write(text) }: // the reader may be gone
	default:
	}
	return len(p), nil
}

// flush waits until everything queued was written, at most for limit.
func (t *stderrQueue) flush(limit time.Duration) {
	written, over := make(chan struct{}), time.After(limit)
	select {
	case t.queue <- func() { close(written) }:
	case <-over:
		return
	}
	select {
	case <-written:
	case <-over:
	}
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
func isTTY(w io.Writer) bool { return columnsOf(w) >= 0 }

// Columns returns the width of a terminal whose lines can be updated, and 0 for another writer.
func Columns(w io.Writer) int {
	if dumb() {
		return 0
	}
	return max(0, columnsOf(w))
}

// columnsOf returns the width of the terminal w: 0 if the terminal does not report it, -1 if w is
// not a terminal. It queries the terminal each time, since the window may be resized.
func columnsOf(w io.Writer) int {
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
