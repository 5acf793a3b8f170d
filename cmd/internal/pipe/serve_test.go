//go:build unix

package pipe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// program is the other end of a server in this process.
type program struct {
	t     *testing.T
	to    io.WriteCloser
	from  *bufio.Scanner
	ended chan struct{} // closed when Serve has returned
}

func start(t *testing.T) *program {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	p := &program{t: t, to: to, from: bufio.NewScanner(from), ended: make(chan struct{})}
	go func() { // ends with the input
		defer close(p.ended)
		Serve(t.Context(), Config{
			Engine: memlock.New(nil), Version: "test", In: in, Out: out, Parent: make(chan struct{}),
			Redact: func(s string) string { return s },
			Status: func(s driver.Status) any { return s.Mode.String() },
			Rate:   func(string) (ratelimit.Limit, error) { return ratelimit.Limit{}, errors.New("no rate") },
		})
	}()
	t.Cleanup(func() { to.Close(); <-p.ended })
	p.want(`"hello"`)
	return p
}

func (p *program) write(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.to, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// want reads a line, which must have all parts.
func (p *program) want(parts ...string) (line response) {
	p.t.Helper()
	if !p.from.Scan() {
		p.t.Fatalf("no line with %q: %v", parts, p.from.Err())
	}
	for _, part := range parts {
		if !strings.Contains(p.from.Text(), part) {
			p.t.Fatalf("%s has no %q", p.from.Text(), part)
		}
	}
	if err := json.Unmarshal(p.from.Bytes(), &line); err != nil {
		p.t.Fatal(err)
	}
	return line
}

// TestBadInput: each bad line has one answer, and a lock is not touched.
func TestBadInput(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.write(`{"op":"acquire","id":1,"name":"a"}`)
	p.want(`"id":1`, `"acquired"`)
	for _, line := range []string{
		"rubbish", "[]", `"text"`, `{"op":"acquire","id":1,"name":"b"}`, `{"op":"acquire","id":-1,"name":"b"}`,
		`{"op":"dance","id":1}`, `{"op":"release","id":"1"}`, `{"op":"beat","at":"now"}`, "\xff\xfe\x00", strings.Repeat("x", 3*maxLine),
	} {
		p.write("%s", line)
		if response := p.want(`"error"`); response.ID == 1 {
			t.Errorf("the answer to %.40q seems to be about the lock", line)
		}
	}
	p.write(`{"op":"acquire","id":2,"name":%q,"wait_ms":0}`, "a")
	p.want(`"id":2`, `"held"`)
	p.write(`{"op":"take","id":3,"name":"r","rate":"x"}`)
	p.want(`"id":3`, `"invalid"`)
	p.write(`{"op":"check","id":1,"future":[1,{}]}`)
	p.want(`"held":true`)
	p.write(`{"op":"release","id":1}`)
	p.want(`"ended":"released"`)
}

// TestReleaseOfARequest: a release gives up a request that waits, and the end of the input releases.
func TestReleaseOfARequest(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.write(`{"op":"acquire","id":1,"name":"a","at":7.5}`)
	p.want(`"id":1`, `"acquired"`, `"at":7.5`)
	p.write(`{"op":"acquire","id":2,"name":"a"}`)
	p.want(`"id":2`, `"waiting"`)
	p.write(`{"op":"cancel","id":2}`)
	p.want(`"id":2`, `"cancelled"`)
	p.write(`{"op":"release","id":2}`)
	p.want(`"id":2`, `"unknown"`)
	p.to.Close()
	p.want(`"id":1`, `"ended":"released"`)
}

// TestUnreadAnswers: a program that does not read is not served, and nothing is lost when it reads.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	p := start(t)
	const n = 200_000 // more than maxUnread
	wrote := make(chan struct{})
	go func() { // ends when all is written
		defer close(wrote)
		w := bufio.NewWriter(p.to)
		for i := range n {
			fmt.Fprintf(w, `{"op":"release","id":%d}`+"\n", i+1)
		}
		_ = w.Flush()
	}()
	select {
	case <-wrote:
		t.Error("the requests were read although nobody reads the answers")
	case <-time.After(time.Second): // no event tells that nothing happens
	}
	for i := range n {
		if !p.from.Scan() || !bytes.Contains(p.from.Bytes(), fmt.Appendf(nil, `"id":%d,`, i+1)) {
			t.Fatalf("answer %d is %q", i+1, p.from.Bytes())
		}
	}
	<-wrote
}
