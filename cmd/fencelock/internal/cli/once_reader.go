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

// reader is whoever reads our stdout or stderr, slowly or not at all. One goroutine writes
// for it, which nobody has to wait for.
type reader struct {
	name string
	to   io.Writer
	next chan []byte   // closed by end
	rest []byte        // what follows then; set before next is closed
	done chan struct{} // closed when all was written
	err  error         // of the first write that failed; valid after done
}

// newReaders are those of our stdout and stderr.
func newReaders(a *app) (both [2]*reader) {
	for i, r := range []*reader{{name: "stdout", to: a.stdout}, {name: "stderr", to: unqueued(a.stderr)}} {
		r.next, r.done = make(chan []byte), make(chan struct{})
		go r.write() // ends after end, or with the process if nobody reads
		both[i] = r
	}
	return both
}

// unqueued is where stderr goes without a queue that may leave something out.
func unqueued(w io.Writer) io.Writer {
	if f := fileOf(w); f != nil {
		return f
	}
	return w
}

// write writes everything that comes. Once that has failed nothing more is written, and the
// command goes on: its outcome is for others too.
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

// take waits until what came before is written, or until over, and reports whether p will
// be.
func (r *reader) take(p []byte, over <-chan struct{}) bool {
	select {
	case r.next <- p:
		return true
	case <-over:
		return false
	}
}

// end hands over the last part, and waits for nobody.
func (r *reader) end(rest []byte) {
	r.rest = rest
	close(r.next)
}

// deliver waits until readers have got everything, or ctx ends. It is an error if a signal
// has ended it, see endedBySignals, or if something could not be written, though somebody
// reads.
func (a *app) deliver(ctx context.Context, readers [2]*reader) error {
	signal.Reset(unix.SIGTSTP) // nothing is run any more that it could be passed on to
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
