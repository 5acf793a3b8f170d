//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/asyncwriter"
)

// reader is who reads our stdout or stderr.
type reader struct {
	name string
	*asyncwriter.Writer
}

// newReaders returns the readers of our stdout and stderr. After a failed write, the command continues,
// since other processes may need its outcome.
func newReaders(a *App) [2]reader {
	return [2]reader{{"stdout", asyncwriter.New(a.stdout)}, {"stderr", asyncwriter.New(unqueued(a.Stderr))}}
}

// unqueued returns the file behind w, since the stderrQueue may discard messages.
func unqueued(w io.Writer) io.Writer {
	if f := fileOf(w); f != nil {
		return f
	}
	return w
}

// deliver waits until everything has been written or ctx ends. If a signal ended ctx, it returns
// the error of that signal; see EndedBySignals. It returns the error of a failed write, except for
// a pipe without a reader.
func (a *App) deliver(ctx context.Context, readers [2]reader) error {
	signal.Reset(unix.SIGTSTP) // the command has ended, so the signal is not passed on any more
	for _, r := range readers {
		select {
		case <-r.Done():
		case <-ctx.Done():
		}
		select {
		case <-r.Done():
			if err := r.Err(); err != nil && !errors.Is(err, unix.EPIPE) {
				return Exit(ExitOutput, fmt.Errorf("%s could not be written: %w\ntry: the same command line again, which repeats the output", r.name, err))
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
