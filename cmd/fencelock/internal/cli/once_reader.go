//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"

	"golang.org/x/sys/unix"
)

// reader is the reader of our stdout or stderr, which may be slow or gone. A goroutine writes for
// it, so nothing else has to wait.
type reader struct {
	name string
	to   io.Writer
	next chan []byte   // closed by end
	rest []byte        // the last part; set before next is closed
	done chan struct{} // closed when everything was written
	err  error         // of the first write that failed; valid after done
}

// newReaders returns the readers of our stdout and stderr.
func newReaders(a *app) (both [2]*reader) {
	for i, r := range []*reader{{name: "stdout", to: a.stdout}, {name: "stderr", to: unqueued(a.stderr)}} {
		r.next, r.done = make(chan []byte), make(chan struct{})
		go r.write() // ends after end, or with the process if nobody reads
		both[i] = r
	}
	return both
}

// unqueued returns the file behind w, since the queue of talk may discard messages.
func unqueued(w io.Writer) io.Writer {
	if f := fileOf(w); f != nil {
		return f
	}
	return w
}

// write writes everything it receives. After an error it writes nothing more, but the command
// continues, since others need its outcome.
func (r *reader) write() {
	defer close(r.done)
	pass := func(p []byte) {
		if r.err == nil && len(p) > 0 {
			_, r.err = r.to.Write(p)
		}
	}
	for p := range r.next {
		pass(p)
	}
	pass(r.rest)
}

// take hands p to the reader once everything before it is written. It reports false if over is
// closed first.
func (r *reader) take(p []byte, over <-chan struct{}) bool {
	select {
	case r.next <- p:
		return true
	case <-over:
		return false
	}
}

// end hands over the last part without waiting.
func (r *reader) end(rest []byte) {
	r.rest = rest
	close(r.next)
}

// deliver waits until the readers have received everything or ctx ends. It returns the error of a
// signal that has ended ctx, see endedBySignals, and an error if a write failed although the reader
// exists.
func (a *app) deliver(ctx context.Context, readers [2]*reader) error {
	signal.Reset(unix.SIGTSTP) // no command is left to pass it on to
	for _, r := range readers {
		select {
		case <-r.done:
		case <-ctx.Done():
		}
		select {
		case <-r.done:
			if r.err != nil && !errors.Is(r.err, unix.EPIPE) {
				return &exitError{code: exitOutput, err: fmt.Errorf("%s could not be written: %w\ntry: the same command line again, which repeats the output", r.name, r.err)}
			}
		default:
			if stopped, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
				return stopped
			}
			return nil
		}
	}
	return nil
}
