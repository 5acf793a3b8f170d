//go:build unix

package cli

import (
	"io"
	"os"
	"sync"
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
	out *os.File

	mu    sync.Mutex    // guards queue, idle
	queue [][]byte      // not written yet
	idle  chan struct{} // closed when the queue is empty; nil while it is
}

// Write queues p. It never fails: nobody could be told.
func (t *talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) < mostTalk {
		t.queue = append(t.queue, append([]byte(nil), p...))
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
		go t.write() // ends when the queue is empty, or with the process if nobody reads
	}
	return len(p), nil
}

// write writes what is queued, without the mutex, since a write may take for ever.
func (t *talk) write() {
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			close(t.idle)
			t.idle = nil
			t.mu.Unlock()
			return
		}
		message := t.queue[0]
		t.mu.Unlock()
		_, _ = t.out.Write(message) // whoever read it may be gone
		t.mu.Lock()
		t.queue = t.queue[1:]
		t.mu.Unlock()
	}
}

// flush waits until all is written, no longer than limit: whoever does not read must not
// keep us from ending.
func (t *talk) flush(limit time.Duration) {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(limit):
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
func isTTY(w io.Writer) bool {
	f := fileOf(w)
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
