package house_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// The README's blocks do what the README says: its Go runs, its commands run,
// and its links lead somewhere.

// readmeBlock is one fenced block of the README.
type readmeBlock struct {
	line           int
	language, text string
}

// readBlocks returns the fenced blocks of a page.
func readBlocks(t *testing.T, page string) []readmeBlock {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	text := readText(t, page)
	var blocks []readmeBlock
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:m[0]], "\n")
		blocks = append(blocks, readmeBlock{line, text[m[2]:m[3]], text[m[4]:m[5]]})
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no fenced blocks", page)
	}
	return blocks
}

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readmeProgram is a whole program around the Go blocks of the README: one function
// for each, with what the reader is left to imagine.
const readmeProgram = `// Command readme runs the Go blocks of the README.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/filelock"
)

var (
	_ = errors.Is
	_ = time.Minute
	locks = fencelock.New(filelock.New(os.Args[1], nil), nil)
)

func charge(ctx context.Context, token int64) error {
	if token <= 0 {
		return fmt.Errorf("token %%d", token)
	}
	return ctx.Err()
}
func transfer(ctx context.Context, from, to int64) error {
	if from <= 0 || to <= 0 {
		return fmt.Errorf("tokens %%d and %%d", from, to)
	}
	return ctx.Err()
}
func work(ctx context.Context)       {}
func read(ctx context.Context) error { return ctx.Err() }

func main() {
	for i, block := range []func(context.Context) error{%s} {
		if err := block(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "block %%d: %%v\n", i+1, err)
			os.Exit(1)
		}
	}
	fmt.Println("all blocks ran")
}
`

func TestReadmeGo(t *testing.T) {
	dir := readmeDir(t)
	var names, funcs []string
	for i, b := range readBlocks(t, "README.md") {
		if b.language != "go" || strings.HasPrefix(b.text, "package main") {
			continue
		}
		name := fmt.Sprintf("block%d", i)
		names = append(names, name)
		text := strings.Replace(b.text, `"/var/lib/myapp/locks"`, "os.Args[1]", 1)
		end := "return nil"
		if strings.Contains(text, "err := locks.Do") || strings.Contains(text, "err := readers.Do") {
			end = "return err"
		}
		funcs = append(funcs, fmt.Sprintf("func %s(ctx context.Context) error {\n//line README.md:%d\n%s%s\n}\n", name, b.line+1, text, end))
	}
	source := fmt.Sprintf(readmeProgram, strings.Join(names, ", ")) + strings.Join(funcs, "\n")
	out := runOverlay(t, dir, source)
	if want := "all blocks ran\n"; out != want {
		t.Errorf("the Go blocks printed %q, want %q", out, want)
	}
}

// TestReadmePrograms: the whole programs are those of examples, where they are tested on
// real servers.
func TestReadmePrograms(t *testing.T) {
	var known []string
	for _, name := range []string{"examples/redis/main.go", "examples/postgres/main.go"} {
		_, code, _ := strings.Cut(readText(t, name), "\npackage main")
		known = append(known, "package main"+code)
	}
	programs := 0
	for _, b := range readBlocks(t, "README.md") {
		if strings.HasPrefix(b.text, "package main") {
			programs++
			if !slices.Contains(known, b.text) {
				t.Errorf("README.md:%d: not one of the programs in examples", b.line)
			}
		}
	}
	if programs != len(known) {
		t.Errorf("%d programs, want %d", programs, len(known))
	}
}

// runOverlay runs source as a command of this module, without a file in its tree.
func runOverlay(t *testing.T, dir, source string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "main.go")
	overlay := filepath.Join(dir, "overlay.json")
	place := filepath.Join(root, "internal", "readme", "main.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {place: file}})
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, file, source, 0o600)
	writeText(t, overlay, string(replace), 0o600)
	cmd := exec.Command("go", "run", "-overlay", overlay, "./internal/readme", filepath.Join(dir, "locks"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func writeText(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func readmeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "readme")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestReadmeShell(t *testing.T) {
	dir := readmeDir(t)
	bin := filepath.Join(dir, "fencelock")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", bin, "./cmd/fencelock").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, command := range []string{"backup.sh", "serve"} {
		writeText(t, filepath.Join(dir, command), "#!/bin/sh\ntest \"$FENCELOCK_TOKEN\" -gt 0\n", 0o700)
	}

	targets := makeTargets(t)
	for _, b := range readBlocks(t, "README.md") {
		if b.language != "sh" {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
			checkCommand(t, dir, line, targets)
		}
	}
}

// checkCommand runs a line of the README, or checks what must not run in a test:
// make, which runs this test, and what needs the network.
func checkCommand(t *testing.T, dir, line string, targets []string) {
	t.Helper()
	words := strings.Fields(line)
	switch {
	case words[0] == "make":
		if len(words) != 2 || !slices.Contains(targets, words[1]) {
			t.Errorf("README: %q: the Makefile has no such target", line)
		}
	case words[0] == "go" && (words[1] == "get" || words[1] == "install"):
		name, _, _ := strings.Cut(words[2], "@")
		dir, ours := strings.CutPrefix(name, modulePath)
		if _, err := os.Stat(filepath.Join(".", dir)); !ours || err != nil {
			t.Errorf("README: %q: %s has no such package", line, modulePath)
		}
	case strings.HasPrefix(line, "go run "):
		runLine(t, ".", dir, line)
	case words[0] == "fencelock":
		runLine(t, dir, dir, line)
	default:
		t.Errorf("README: %q: a command this test does not know", line)
	}
}

// runLine runs a line as it is typed, with the built command on the PATH and its
// locks in dir.
func runLine(t *testing.T, cwd, dir, line string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = cwd
	cmd.Env = append(os.Environ(),
		"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"),
		"FENCELOCK_URL=file://"+filepath.ToSlash(filepath.Join(dir, "locks")))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("README: %s: %v\n%s", line, err, out)
	}
}

func makeTargets(t *testing.T) []string {
	t.Helper()
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(readText(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// documents returns the names of all documents.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestLinks checks that every relative link in the documents leads to a file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(readText(t, document), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", document, m[1])
			}
		}
	}
}

// TestNamedTestsExist checks that the tests and the cases of the exam that the
// documents name are there.
func TestNamedTestsExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test {
				known[f.Name.Name] = true
			}
		}
	}
	for _, c := range drivertest.Cases() {
		known["exam/"+c.Name] = true
	}
	named := regexp.MustCompile("`(Test[A-Z]\\w*|exam/[a-z-]+)[`/]")
	for _, document := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(readText(t, document), -1) {
			if !known[m[1]] {
				t.Errorf("%s names %s, which does not exist", document, m[1])
			}
		}
	}
}
