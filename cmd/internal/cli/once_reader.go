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

// reader writes to our stdout or stderr in a goroutine of its own, so that a slow or missing reader
// of the stream does not block the rest of the program.
type reader struct {
	name string
	to   io.Writer
	next chan []byte   // closed by end
	rest []byte        // the last part; set before next is closed
	done chan struct{} // closed when everything was written
	err  error         // of the first write that failed; valid after done
}

// newReaders returns readers for our stdout and stderr, and starts their goroutines.
func newReaders(a *App) (both [2]*reader) {
	for i, r := range []*reader{{name: "stdout", to: a.stdout}, {name: "stderr", to: unqueued(a.Stderr)}} {
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

// write writes everything it receives. After an error it discards the rest. The command continues,
// since other processes may need its outcome.
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

// take hands p to the goroutine when everything before p has been written. It returns false if over
// is closed first.
func (r *reader) take(p []byte, over <-chan struct{}) bool {
	select {
	case r.next <- p:
		return true
	case <-over:
		return false
	}
}

// end hands over the last part. It does not block.
func (r *reader) end(rest []byte) {
	r.rest = rest
	close(r.next)
}

// deliver waits until everything has been written or ctx ends. If a signal ended ctx, it returns
// the error of that signal; see EndedBySignals. It returns the error of a failed write, except for
// a pipe without a reader.
func (a *App) deliver(ctx context.Context, readers [2]*reader) error {
	signal.Reset(unix.SIGTSTP) // the command has ended, so the signal is not passed on any more
	for _, r := range readers {
		select {
		case <-r.done:
		case <-ctx.Done():
		}
		select {
		case <-r.done:
			if r.err != nil && !errors.Is(r.err, unix.EPIPE) {
				return Exit(ExitOutput, fmt.Errorf("%s could not be written: %w\ntry: the same command line again, which repeats the output", r.name, r.err))
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
