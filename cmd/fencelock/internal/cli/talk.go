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
	mostTalk    = 256         // messages that wait for a reader; more are left out
	lastMessage = time.Second // how long an exit waits for a reader
)

// talk writes to stderr without ever blocking: a full pipe, a terminal stopped by
// Ctrl-S or a reader that is gone must not keep a command from being ended in time.
type talk struct {
	out   *os.File
	queue chan func() // each writes a message
}

// newTalk returns a talk, whose goroutine ends with the process.
func newTalk(out *os.File) *talk {
	t := &talk{out: out, queue: make(chan func(), mostTalk)}
	go func() {
		for next := range t.queue {
			next()
		}
	}()
	return t
}

// Write queues p, or leaves it out if too many messages wait. It never fails.
func (t *talk) Write(p []byte) (int, error) {
	text := bytes.Clone(p)
	select {
	case t.queue <- func() { _, _ = t.out.Write(text) }: // the reader may be gone
	default:
	}
	return len(p), nil
}

// flush waits until all that is queued was written, no longer than limit.
func (t *talk) flush(limit time.Duration) {
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

// fileOf returns the file that w writes to, or nil: what is written may go to a buffer,
// in a test.
func fileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *os.File:
		return w
	case dataWriter:
		return fileOf(w.to)
	case *talk:
		return w.out
	}
	return nil
}

// isTTY reports whether w leads to a terminal.
func isTTY(w io.Writer) bool { return columnsOf(w) >= 0 }

// columnsOf returns the columns of the terminal that w leads to, perhaps 0 if it does not tell
// them, or -1 if w leads to no terminal.
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
