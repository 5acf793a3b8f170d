// Package asyncwriter writes in the background, so that a slow or missing reader blocks nobody else.
package asyncwriter

import (
	"io"
	"sync"
	"time"
)

// Writer writes what it gets, in order. Its methods are safe for concurrent use.
type Writer struct {
	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	queued  []byte
	limit   int           // of queued, if it is more than one message; more is discarded; 0 means none
	closed  bool          // nothing follows
	hurried bool          // Room does not wait
	err     error         // of the first write that failed; what follows is discarded
	done    chan struct{} // closed when everything is written, or cannot be written
}

// New returns a Writer that discards what would be more than limit queued bytes, unless nothing else is
// queued; 0 means no limit. Its goroutine ends after Close, or with the process if nobody reads.
func New(to io.Writer, limit int) *Writer {
	w := &Writer{limit: limit, done: make(chan struct{})}
	w.changed = sync.NewCond(&w.mu)
	go w.run(to)
	return w
}

func (w *Writer) run(to io.Writer) {
	defer close(w.done)
	for {
		w.mu.Lock()
		for len(w.queued) == 0 && !w.closed {
			w.changed.Wait()
		}
		next := w.queued
		w.queued = nil
		w.changed.Broadcast()
		w.mu.Unlock()
		if len(next) == 0 {
			return
		}
		if _, err := to.Write(next); err != nil {
			w.change(func() { w.err, w.queued = err, nil })
		}
	}
}

// change changes the fields.
func (w *Writer) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	w.changed.Broadcast()
}

// Write queues p. It does not block, and never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.change(func() {
		if w.err == nil && (w.limit == 0 || len(w.queued) == 0 || len(w.queued)+len(p) <= w.limit) {
			w.queued = append(w.queued, p...)
		}
	})
	return len(p), nil
}

// Room waits until at most limit bytes are queued, or until Hurry or Close.
func (w *Writer) Room(limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queued) > limit && !w.hurried {
		w.changed.Wait()
	}
}

// Hurry ends the wait of Room now, and in future.
func (w *Writer) Hurry() { w.change(func() { w.hurried = true }) }

// Close ends the Writer when everything has been written. Nothing may be written after that.
func (w *Writer) Close() { w.change(func() { w.closed, w.hurried = true, true }) }

// Flush is Close, and waits for limit at most until everything has been written.
func (w *Writer) Flush(limit time.Duration) {
	w.Close()
	select {
	case <-w.done:
	case <-time.After(limit):
	}
}

// Done is closed when everything has been written after Close.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err returns the error of the first write that failed. It may be called after Done.
func (w *Writer) Err() error { return w.err }
