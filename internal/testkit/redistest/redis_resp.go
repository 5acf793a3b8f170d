package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// A replyError is an error the server answered with.
type replyError string

func (e replyError) Error() string { return string(e) }

func isReply(err error) bool {
	var e replyError
	return errors.As(err, &e)
}

// Do runs one command on a new connection and returns the reply as text: "" for nil, the elements
// of an array on lines of their own. An error ends the test.
func (r *Redis) Do(t hosttest.TB, args ...string) string {
	t.Helper()
	reply, err := r.TryDo(args...)
	if err != nil {
		t.Fatalf("redis %s: %s: %v", r.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// TryDo is Do, but returns the error: that of the server, or why it did not answer. It waits up to
// 10 s.
func (r *Redis) TryDo(args ...string) (string, error) {
	c, err := r.dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	if r.password != "" {
		if _, err := roundTrip(c, in, "AUTH", r.password); err != nil {
			return "", err
		}
	}
	return roundTrip(c, in, args...)
}

func (r *Redis) dial() (net.Conn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if r.tls != nil {
		return tls.DialWithDialer(d, "tcp", r.Addr(), r.tls)
	}
	return d.Dial("tcp", r.Addr())
}

func roundTrip(out io.Writer, in *bufio.Reader, args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return "", err
	}
	return readReply(in)
}

// readReply reads one reply of RESP2.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("empty reply")
	}
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return "", replyError(line[1:])
	case '$':
		return readBulk(in, line[1:])
	case '*':
		return readArray(in, line[1:])
	}
	return "", fmt.Errorf("not a reply of redis: %q", line)
}

func readBulk(in *bufio.Reader, size string) (string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return "", err
	}
	b := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(in, b); err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// readArray reads every element even if one is an error, and returns the first
// of those.
func readArray(in *bufio.Reader, size string) (string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return "", err
	}
	lines := make([]string, n)
	var failed error
	for i := range lines {
		lines[i], err = readReply(in)
		if err != nil && !isReply(err) {
			return "", err
		}
		if failed == nil {
			failed = err
		}
	}
	return strings.Join(lines, "\n"), failed
}
