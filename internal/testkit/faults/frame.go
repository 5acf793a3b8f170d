package faults

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// A framer cuts what a client sends into requests, so that a rule is about one
// of them and not about what happened to arrive at once. It knows the protocols
// of Redis, PostgreSQL and MySQL. What it does not know, TLS above all, passes as it
// comes.
type framer struct {
	rest  []byte // the beginning of a request
	size  func([]byte) int
	began bool // the protocol has been recognised
}

// cut returns the requests that are complete with the bytes that came, and keeps
// what is left.
func (f *framer) cut(data []byte) (requests [][]byte) {
	all := slices.Concat(f.rest, data)
	if !f.began && len(all) < 5 { // less than any protocol begins with
		f.rest = all
		return nil
	}
	if !f.began {
		f.began, f.size = true, protocol(all)
	}
	for len(all) > 0 {
		n := f.size(all)
		if n < 0 {
			f.size = rawSize
			continue
		}
		if n == 0 || n > len(all) {
			break
		}
		requests, all = append(requests, all[:n:n]), all[n:]
	}
	f.rest = all
	return requests
}

// protocol tells by the first bytes of a connection how to find the end of a
// request: a function that returns its length, 0 for one that is not complete,
// and -1 for bytes it does not understand.
func protocol(first []byte) func([]byte) int {
	switch {
	case first[0]|first[1] != 0 && first[2] == 0 && first[3] == 1: // the answer to a greeting
		return mysqlSize
	case first[0] == 0:
		return postgresSize
	case first[0] >= ' ' && first[0] < 0x7f:
		return redisSize
	}
	return rawSize
}

// rawSize takes what came at once for one request.
func rawSize(b []byte) int { return len(b) }

// redisSize understands arrays of strings, and lines.
func redisSize(b []byte) int {
	count, at := redisLine(b, '*')
	if at == 0 || b[0] != '*' {
		return at
	}
	for ; count > 0 && at > 0 && at < len(b); count-- {
		length, n := redisLine(b[at:], '$')
		if n <= 0 {
			return n
		}
		at += n + length + len("\r\n")
	}
	if count < 0 {
		return -1
	}
	if count > 0 || at > len(b) {
		return 0
	}
	return at
}

// redisLine reads a number after its mark, and returns the length of the line: 0
// if it is not complete, -1 if it is no number.
func redisLine(b []byte, mark byte) (number, size int) {
	size = bytes.IndexByte(b, '\n') + 1
	if size == 0 || b[0] != mark {
		if b[0] != mark && mark == '$' {
			return 0, -1
		}
		return 0, size
	}
	number, err := strconv.Atoi(string(bytes.TrimSpace(b[1:size])))
	if err != nil || number < 0 {
		return 0, -1
	}
	return number, size
}

// postgresSize takes all messages up to the one that makes the server answer for
// one request: a parsed, bound and executed statement with its Sync.
func postgresSize(b []byte) int {
	if b[0] == 0 { // before the start a message has no type
		return postgresMessage(b)
	}
	for at := 0; at < len(b); {
		n := postgresMessage(b[at+1:])
		if n <= 0 || at+1+n > len(b) {
			return min(n, 0)
		}
		kind := b[at]
		at += 1 + n
		if bytes.IndexByte([]byte("QSHXFdcfp"), kind) >= 0 {
			return at
		}
	}
	return 0
}

// postgresMessage returns the length of a message, which it begins with: 0 if
// that is not there, -1 if it cannot be one.
func postgresMessage(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	n := binary.BigEndian.Uint32(b)
	if n < 4 || n > 1<<30 {
		return -1
	}
	return int(n)
}

// mysqlSize takes a packet, which is one request unless it has 16 MB.
func mysqlSize(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
}
