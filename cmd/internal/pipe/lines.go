//go:build unix

package pipe

import (
	"bufio"
	"encoding/json"
	"errors"
)

const (
	maxLine   = 64 << 10 // bytes of a request
	maxUnread = 4 << 20  // bytes of answers that the program has not read, after which no requests are read
)

// errTooLong means that a line was longer than maxLine. The reader is at the next line.
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

// put writes a line to the program, without waiting for it.
func (s *server) put(t response) {
	line, err := json.Marshal(t)
	if err != nil {
		panic(err) // a response has text and finite numbers only
	}
	_, _ = s.out.Write(append(line, '\n')) // it never fails
}
