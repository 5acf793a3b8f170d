// Package plainlock runs locks on Redis as programs without a library write them: programs in Python that
// use its standard library only.
package plainlock

import (
	"bufio"
	_ "embed" // the programs
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The kinds of programs.
const (
	Plain   = "plain"    // SET NX PX; renews with EXPIRE and compares nothing; releases with GET, then DEL
	RedisPy = "redis-py" // as the Lock of redis-py: renews and releases with scripts that compare the value
	Redlock = "redlock"  // the textbook algorithm on several masters, with such scripts
)

//go:embed plain.py
var source string

// TB is what a program needs of a test. Tests pass their *testing.T.
type TB interface {
	Helper()
	Cleanup(func())
	Output() io.Writer
	Skip(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A Program is a process with a lock. It is not safe for concurrent use.
type Program struct {
	stdin io.Writer
	lines *bufio.Reader
}

// Start starts a program that locks key, which is that of the server, on the masters at these addresses.
// It ends with the test. Without Python the test is skipped.
func Start(t TB, kind, key string, ttl time.Duration, addresses ...string) *Program {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no Python here")
	}
	cmd := exec.Command(python, append([]string{"-I", "-S", "-c", source, kind, key, strconv.FormatInt(ttl.Milliseconds(), 10)}, addresses...)...)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // then the program exits
		_ = cmd.Wait()
	})
	return &Program{stdin: stdin, lines: bufio.NewReader(stdout)}
}

// Ask runs a command and returns the answer: yes, no, or the error of the server. The commands are
// acquire, which does not wait; renew; release; look and delete, the halves of a release of Plain; and
// "work N KEY", which takes the lock N times, and waits for it, to add to the number at KEY.
func (p *Program) Ask(t TB, command string) string {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		t.Fatal(err)
	}
	answer, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSuffix(answer, "\n")
}

// Expect runs a command. If the answer differs, the test fails and continues.
func (p *Program) Expect(t TB, command, want string) {
	t.Helper()
	if got := p.Ask(t, command); got != want {
		t.Errorf("%s: %q, want %q", command, got, want)
	}
}
