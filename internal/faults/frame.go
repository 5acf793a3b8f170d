package faults

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// A framer splits the bytes from a client into requests, so that a rule applies to one request and
// not to everything that arrived at the same time. It knows the protocols of Redis, PostgreSQL and
// MySQL. Other protocols, such as HTTP/2 and TLS, are forwarded without being split.
type framer struct {
	rest  []byte // the beginning of a request
	size  func([]byte) int
	began bool // the protocol is known
}

// cut returns the requests that data completes, and keeps the rest.
func (f *framer) cut(data []byte) (requests [][]byte) {
	all := slices.Concat(f.rest, data)
	if !f.began && len(all) < 5 { // too short to recognise the protocol
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

// protocol recognises the protocol by the first bytes of a connection. It returns a function that
// returns the length of a request: 0 if the request is not complete, and -1 if the bytes are
// invalid.
func protocol(first []byte) func([]byte) int {
	switch {
	case first[0]|first[1] != 0 && first[2] == 0 && first[3] == 1: // the answer to a greeting
		return mysqlSize
	case first[0] == 0:
		return postgresSize
	case string(first[:5]) == "PRI *": // HTTP/2, which clients of etcd speak
		return rawSize
	case slices.Contains([]string{"GET /", "PUT /", "DELET", "POST ", "PATCH"}, string(first[:5])):
		return httpSize
	case first[0] >= ' ' && first[0] < 0x7f:
		return redisSize
	}
	return rawSize
}

// rawSize treats everything that arrived at the same time as one request.
func rawSize(b []byte) int { return len(b) }

// redisSize parses arrays of strings, and lines.
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

// redisLine parses a line that consists of a mark and a number. It also returns the length of the
// line: 0 if it is not complete, -1 if it is invalid.
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

// postgresSize treats all messages up to one that makes the server answer as one request, for
// example Parse, Bind, Execute and Sync.
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

// postgresMessage returns the length at the beginning of a message: 0 if it is not complete, -1 if
// it is invalid.
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

// mysqlSize returns the length of a packet, which is one request unless it has 16 MB. A TLS handshake
// is invalid: its fourth byte is that of a length, where commands have the number 0.
func mysqlSize(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	if b[0] == 0x16 && b[1] == 3 && b[3] != 0 {
		return -1
	}
	return 4 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
}

// httpSize returns the length of a request of HTTP/1.1 with its body, whose length is in a header.
func httpSize(b []byte) int {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		return 0
	}
	size := head + len("\r\n\r\n")
	for line := range bytes.Lines(b[:head]) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || n < 0 {
				return -1
			}
			return size + n
		}
	}
	return size
}
