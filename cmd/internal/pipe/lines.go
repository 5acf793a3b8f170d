//go:build unix

package pipe

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	longestLine = 64 << 10 // bytes of a request
	mostUnread  = 4 << 20  // bytes of answers that the program has not read, after which no requests are read
)

// errTooLong means that a line was longer than longestLine. The reader is at the next line.
var errTooLong = errors.New("the line is longer than 65536 bytes")

// readLine returns the next line. It is valid until the next call.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = in.ReadSlice('\n')
	}
	if err != nil {
		return nil, err
	}
	return nil, errTooLong
}

// output writes lines in order. Its callers do not wait for the reader of the pipe.
type output struct {
	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	lines   []byte
	closed  bool          // no line follows
	broken  bool          // nobody can read
	ended   chan struct{} // closed when everything is written, or cannot be written
}

// newOutput starts a goroutine that ends after close.
func newOutput(w io.Writer) *output {
	o := &output{ended: make(chan struct{})}
	o.changed = sync.NewCond(&o.mu)
	go o.drain(w)
	return o
}

func (o *output) put(t told) {
	line, err := json.Marshal(t)
	if err != nil {
		panic(err) // a told has text and finite numbers only
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.broken {
		o.lines = append(append(o.lines, line...), '\n')
		o.changed.Broadcast()
	}
}

// room waits until the program has read enough, or cannot read any more.
func (o *output) room() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.lines) > mostUnread && !o.closed {
		o.changed.Wait()
	}
}

func (o *output) drain(w io.Writer) {
	defer close(o.ended)
	for {
		o.mu.Lock()
		for len(o.lines) == 0 && !o.closed {
			o.changed.Wait()
		}
		lines := o.lines
		o.lines = nil
		o.changed.Broadcast()
		o.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		if _, err := w.Write(lines); err != nil {
			o.mu.Lock()
			o.broken, o.lines = true, nil
			o.changed.Broadcast()
			o.mu.Unlock()
		}
	}
}

// close waits for the reader, but not long: a program that is gone or frozen must not keep this process.
func (o *output) close() {
	o.mu.Lock()
	o.closed = true
	o.changed.Broadcast()
	o.mu.Unlock()
	select {
	case <-o.ended:
	case <-time.After(time.Second):
	}
}
