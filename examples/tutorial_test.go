//go:build unix

package examples_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

const (
	tutorialPage = "../docs/tutorial-booking.md"
	// tutorialPatience is how long the test waits for the output of a command. On a machine that has
	// never built anything, a build takes minutes.
	tutorialPatience = 10 * time.Minute
)

// TestTutorialBooking follows docs/tutorial-booking.md from top to bottom, in one shell, in an empty
// directory and against its own servers. Each fenced block is a step:
//
//   - "go": a block with a package clause is saved as main.go. In any other block, each function
//     replaces the function of the same name in main.go, and imports are added.
//   - "sh": each line is run; its output is not compared.
//   - "sh not-run": the block is skipped, because the test provides what it sets up.
//   - "console": lines that begin with "$ " are run, each after the output of the previous one has
//     appeared. All other lines are the exact output. A background process may print its output
//     during a later command; it is shown there.
//
// Every command must exit with status 0. Two things may differ from the page: tokens, which are
// numbers of 16 digits (they must be equal where they are equal on the page, and greater where they
// are greater); and a failed renewal, which is reported after the reason of a loss.
//
// The test sets CHECKOUT, and has the checksums of the modules that this module requires.
func TestTutorialBooking(t *testing.T) {
	t.Parallel()
	dir := hosttest.Dir(t, "fencelock-tutorial-")
	redis, postgres := redistest.StartRedis(t), pgtest.StartPostgres(t)
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	sh := startShell(t, dir, "REDIS_ADDR="+redis.Addr(), "DATABASE_URL="+postgres.DSN())
	page, err := os.ReadFile(tutorialPage)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```([^\n]+)\n(.*?)^```$")
	var steps []string
	for _, m := range block.FindAllSubmatchIndex(page, -1) {
		kind, text := string(page[m[2]:m[3]]), string(page[m[4]:m[5]])
		line := 1 + bytes.Count(page[:m[4]], []byte("\n"))
		steps = append(steps, kind)
		switch kind {
		case "go":
			editProgram(t, filepath.Join(dir, "main.go"), line, text)
		case "sh":
			for i, command := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				sh.run(line+i, command)
				t.Logf("%s", sh.take())
			}
		case "sh not-run":
		case "console":
			followConsole(t, sh, line, text)
		default:
			t.Fatalf("%s:%d: the test does not know blocks of %q", tutorialPage, line-1, kind)
		}
	}
	const last = "wait" // for background processes that print more than the page shows
	sh.run(0, last)
	sh.expect(0, last, nil)
	if !slices.Contains(steps, "go") || !slices.Contains(steps, "console") {
		t.Errorf("%s has the blocks %q", tutorialPage, steps)
	}
}

// followConsole runs the commands of a block and compares what they print.
func followConsole(t *testing.T, sh *shell, line int, text string) {
	t.Helper()
	command, at := "", line
	var want []string
	step := func() {
		if command != "" {
			sh.run(at, command)
			sh.expect(at, command, want)
		} else if len(want) > 0 {
			t.Fatalf("%s:%d: output without a command", tutorialPage, at)
		}
	}
	for i, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		next, isCommand := strings.CutPrefix(l, "$ ")
		if !isCommand {
			want = append(want, l)
			continue
		}
		step()
		command, at, want = next, line+i, nil
	}
	step()
}

// editProgram applies a Go block to the program.
func editProgram(t *testing.T, name string, line int, block string) {
	t.Helper()
	at := fmt.Sprintf("%s:%d", tutorialPage, line)
	if strings.HasPrefix(block, "package ") {
		checkFormat(t, at, block)
		writeProgram(t, name, block)
		return
	}
	const clause = "package main\n\n"
	checkFormat(t, at, clause+block)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	edits := parseGo(t, at, clause+block)
	out := string(text)
	for _, decl := range edits.file.Decls {
		switch d := decl.(type) {
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				t.Fatalf("%s: the test replaces functions only", at)
			}
			out = strings.Replace(out, "\nimport (\n", "\n"+edits.source(d)+"\n\nimport (\n", 1)
		case *ast.FuncDecl:
			old := ""
			program := parseGo(t, name, out)
			for _, decl := range program.file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == d.Name.Name {
					old = program.source(f)
				}
			}
			if old == "" {
				t.Fatalf("%s: the program has no function %s", at, d.Name.Name)
			}
			out = strings.Replace(out, old, edits.source(d), 1)
		}
	}
	writeProgram(t, name, out)
}

func checkFormat(t *testing.T, at, source string) {
	t.Helper()
	if formatted, err := format.Source([]byte(source)); err != nil || string(formatted) != source {
		t.Errorf("%s: not formatted by gofmt: %v", at, err)
	}
}

func writeProgram(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// goSource is a parsed file.
type goSource struct {
	set  *token.FileSet
	file *ast.File
	text string
}

func parseGo(t *testing.T, name, text string) goSource {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return goSource{set, file, text}
}

// source returns the text of a declaration.
func (g goSource) source(n ast.Node) string {
	return g.text[g.set.Position(n.Pos()).Offset:g.set.Position(n.End()).Offset]
}

// shell is a bash that runs the commands of the page. It collects their output.
type shell struct {
	t      *testing.T
	in     *os.File
	tokens map[string]int64 // the actual tokens by those on the page

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu: what was printed since the last take
}

// exited is printed after each command, with its exit status. No command prints it.
var exited = regexp.MustCompile("\x01([0-9]+)\x01")

func startShell(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, in: stdin, tokens: map[string]int64{}}
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, in, s, s
	cmd.Env = append(os.Environ(), "CHECKOUT="+root, "GOWORK=off", "GOFLAGS=-ldflags=-w")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children can be killed with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ends stopped processes too
		_ = stdin.Close()
		_ = cmd.Wait() // it was killed
	})
	return s
}

// Write collects output.
func (s *shell) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// printed returns what was printed since the last take.
func (s *shell) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// take returns what was printed since the last take, without exit statuses.
func (s *shell) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.out.Reset()
	return exited.ReplaceAllString(s.out.String(), "")
}

func (s *shell) send(text string) {
	s.t.Helper()
	if _, err := s.in.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a command and returns when the shell can run the next one.
func (s *shell) run(line int, command string) {
	s.t.Helper()
	s.send(command + "\nprintf '\\001%d\\001' $?\n")
	var status []string
	if !eventually(func() bool { status = exited.FindStringSubmatch(s.printed()); return status != nil }) {
		s.t.Fatalf("%s:%d: %s: has not ended; it printed\n%s", tutorialPage, line, command, s.take())
	}
	if status[1] != "0" {
		s.t.Fatalf("%s:%d: %s: exit status %s\n%s", tutorialPage, line, command, status[1], s.take())
	}
}

// expect waits until the output of a command has as many lines as the page shows, and compares
// it. If background processes print more, a later command fails.
func (s *shell) expect(line int, command string, want []string) {
	s.t.Helper()
	var got []string
	eventually(func() bool {
		text := exited.ReplaceAllString(s.printed(), "")
		got = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if text == "" {
			got = nil
		}
		return len(got) >= len(want) && (text == "" || strings.HasSuffix(text, "\n"))
	})
	s.take()
	printed, shown := strings.Join(got, "\n"), strings.Join(want, "\n")
	if mask(printed) != mask(shown) {
		s.t.Fatalf("%s:%d: %s: printed\n%s\nwant\n%s", tutorialPage, line, command, printed, shown)
	}
	s.compareTokens(line, printed, shown)
}

var (
	tokenPattern = regexp.MustCompile(`\b[0-9]{16}\b`)
	lossPattern  = regexp.MustCompile(`(?m)( was lost: [^:\n]+): .*$`)
)

// mask removes what may differ from the page.
func mask(text string) string {
	return lossPattern.ReplaceAllString(tokenPattern.ReplaceAllString(text, "TOKEN"), "$1")
}

// compareTokens compares the order of the actual tokens with that of the tokens on the page.
func (s *shell) compareTokens(line int, got, want string) {
	s.t.Helper()
	actual := tokenPattern.FindAllString(got, -1)
	for i, shown := range tokenPattern.FindAllString(want, -1) {
		number, err := strconv.ParseInt(actual[i], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		for other, known := range s.tokens { // of 16 digits each, so strings are ordered like numbers
			if cmp.Compare(number, known) != cmp.Compare(shown, other) {
				s.t.Errorf("%s:%d: token %d for %s, but %d for %s", tutorialPage, line, number, shown, known, other)
			}
		}
		s.tokens[shown] = number
	}
}

// eventually reports whether a condition becomes true in time.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(tutorialPatience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
