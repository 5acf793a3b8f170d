//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/asyncwriter"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
)

// output passes on what a command writes, without delay, and keeps the beginning of each stream.
type output struct{ streams [2]*stream }

// newOutput keeps up to limit bytes of stdout, and of stderr.
func newOutput(a *App, limit int) (*output, error) {
	o := &output{}
	for i, to := range newReaders(a) {
		ours, theirs, err := os.Pipe()
		if err != nil {
			o.close()
			return nil, err
		}
		s := &stream{to: to, limit: limit, ours: ours, theirs: theirs, ended: make(chan struct{})}
		go s.pass() // ends after finish, or when ours is closed
		o.streams[i] = s
	}
	return o, nil
}

// writers returns the files that the command writes to.
func (o *output) writers() (files [2]*os.File) {
	for i, s := range o.streams {
		files[i] = s.theirs
	}
	return files
}

// finish reads what is left in the pipes. It is called after all processes of the command have
// ended. It waits neither for the readers of our output nor for a foreign process that keeps the
// pipe open.
func (o *output) finish() {
	for _, s := range o.streams {
		s.to.Hurry()
		_ = errors.Join(s.theirs.Close(), s.ours.SetReadDeadline(time.Now())) // pipes have deadlines
		<-s.ended
	}
}

// outcome returns what to store. It is called after finish.
func (o *output) outcome(code int) onceOutcome {
	out, err := o.streams[0], o.streams[1]
	return onceOutcome{Code: code, stdout: out.kept, stderr: err.kept, StdoutCut: out.cut, StderrCut: err.cut}
}

// readers returns the readers of our output.
func (o *output) readers() [2]reader { return [2]reader{o.streams[0].to, o.streams[1].to} }

func (o *output) close() {
	for _, s := range o.streams {
		if s != nil {
			_ = errors.Join(s.theirs.Close(), s.ours.Close()) // may be closed already
		}
	}
}

// onceOutcome is the outcome of a command. It is stored as a line of JSON, followed by the output.
type onceOutcome struct {
	Code      int  `json:"code"`   // exit code of the command
	Stdout    int  `json:"stdout"` // bytes
	StdoutCut bool `json:"stdout_cut,omitempty"`
	StderrCut bool `json:"stderr_cut,omitempty"`

	stdout, stderr []byte // what was kept of them
}

func (o onceOutcome) encode() []byte {
	o.Stdout = len(o.stdout)
	head, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers always marshal
	}
	return bytes.Join([][]byte{head, {'\n'}, o.stdout, o.stderr}, nil)
}

// decodeOnce decodes a stored outcome.
func decodeOnce(over *idempotent.DoneError) (o onceOutcome, err error) {
	head, output, _ := bytes.Cut(over.Result, []byte("\n"))
	if err := json.Unmarshal(head, &o); over.Err != nil || err != nil || o.Stdout < 0 || o.Stdout > len(output) {
		return o, fmt.Errorf("%w: the outcome of %q was stored by another program", driver.ErrConfig, over.Key)
	}
	o.stdout, o.stderr = output[:o.Stdout], output[o.Stdout:]
	return o, nil
}

// stream is stdout or stderr of a command. Its goroutine owns kept, cut and late until ended is
// closed.
type stream struct {
	to    reader
	limit int
	kept  []byte
	cut   bool // some output was not kept
	late  int  // bytes read after the end of the command

	ours, theirs *os.File
	ended        chan struct{} // closed when everything was read
}

// pass reads what the command writes. While the command runs, pass waits for our reader. After that
// it hands the rest to the reader without waiting.
func (s *stream) pass() {
	defer close(s.ended)
	defer s.to.Close()
	buf := make([]byte, 32<<10)
	for read := s.ours.Read; ; {
		n, err := read(buf)
		s.keep(buf[:n])
		_, _ = s.to.Write(buf[:n]) // it never fails
		s.to.Room(len(buf))
		if errors.Is(err, os.ErrDeadlineExceeded) { // the command has ended
			read, err = s.readLate, nil
		}
		if err != nil { // a pipe only ends
			return
		}
	}
}

// keep stores as much of p as there is room for.
func (s *stream) keep(p []byte) {
	room := min(len(p), s.limit-len(s.kept))
	s.kept, s.cut = append(s.kept, p[:room]...), s.cut || room < len(p)
}

// maxLate is more than a pipe holds. A foreign process may write for ever.
const maxLate = 4 << 20

// readLate reads what is already in the pipe, and returns io.EOF if there is nothing.
func (s *stream) readLate(buf []byte) (n int, err error) {
	raw, err := s.ours.SyscallConn()
	if err = errors.Join(err, s.ours.SetReadDeadline(time.Time{})); err != nil {
		return 0, err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), buf)
		return true // do not wait
	})
	if s.late += n; n <= 0 || s.late > maxLate {
		return max(n, 0), io.EOF
	}
	return n, err
}

// reader is who reads our stdout or stderr.
type reader struct {
	name string
	*asyncwriter.Writer
}

// newReaders returns the readers of our stdout and stderr. After a failed write, the command continues,
// since other processes may need its outcome.
func newReaders(a *App) [2]reader {
	return [2]reader{{"stdout", asyncwriter.New(a.stdout, 0)}, {"stderr", asyncwriter.New(unqueued(a.Stderr), 0)}}
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
			return endedBy(ctx)
		}
	}
	return nil
}
