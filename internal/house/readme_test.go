package house_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The README's blocks do what the README says: its Go is tested, and its commands run.

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
	logFolder()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeGo: the Go of the README is part of the programs in examples, which run on real
// servers (TestREADMEPrograms).
func TestReadmeGo(t *testing.T) {
	programs := dedent(readText(t, "examples/redis/main.go")) + dedent(readText(t, "examples/postgres/main.go"))
	for _, b := range readBlocks(t, "README.md") {
		if b.language == "go" && !strings.Contains(programs, dedent(b.text)) {
			t.Errorf("README.md:%d: not part of examples/redis/main.go or examples/postgres/main.go", b.line)
		}
	}
}

// dedent returns text without the tabs before its lines.
func dedent(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

// TestReadmeIsShort: people read the first two screens.
func TestReadmeIsShort(t *testing.T) {
	if lines := strings.Count(readText(t, "README.md"), "\n"); lines > 140 {
		t.Errorf("README.md has %d lines, want 140 at most", lines)
	}
}

// TestSearchWords: the index has the words of other libraries and courses, each with a page.
func TestSearchWords(t *testing.T) {
	_, list, ok := strings.Cut(readText(t, "docs/README.md"), "## Search words")
	list = strings.ReplaceAll(list, "\n  ", " ")
	for _, word := range []string{
		"exclusive access", "coordination", "coordinator", "ACID", "exponential backoff", "jitter", "multi-node", "fault-tolerant", "high availability", "auto-expiry",
		"owner check", "context manager", "async/await", "asyncio", "background jobs", "wait time", "capacity planning", "premature expiry", "durability", "latency",
		"Chaos Mesh", "Chaos Monkey", "start simple", "measure", "anti-patterns", "starvation", "optimistic locking", "double booking", "fencing token", "granularity", "contention", "single active instance", "use case",
	} {
		if !ok || !regexp.MustCompile(`(?m)^- [^:]*\b`+regexp.QuoteMeta(word)+`\b[^:]*: .*\]\(`).MatchString(list) {
			t.Errorf("docs/README.md has no entry for %q", word)
		}
	}
}

// runOverlay runs source as a command of a module, without a file in its tree.
func runOverlay(t *testing.T, module, dir, source string) string {
	t.Helper()
	root, err := filepath.Abs(module)
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
	cmd := exec.Command("go", "run", "-C", root, "-overlay", overlay, "./internal/readme", filepath.Join(dir, "locks"))
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
	if out, err := exec.Command("go", "build", "-C", "cmd", "-buildvcs=false", "-ldflags=-w", "-o", bin, "./fencelock").CombinedOutput(); err != nil {
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
			command, _, _ := strings.Cut(line, " # ")
			checkCommand(t, dir, strings.TrimSpace(command), targets)
		}
	}
}

// checkCommand runs a line of the README, or checks what must not run in a test: make, which runs
// this test, what needs the network, and what does not end.
func checkCommand(t *testing.T, dir, line string, targets []string) {
	t.Helper()
	words := strings.Fields(line)
	switch {
	case words[0] == "make":
		if len(words) != 2 || !slices.Contains(targets, words[1]) {
			t.Errorf("README: %q: the Makefile has no such target", line)
		}
	case words[0] == "git" || words[0] == "go" && (words[1] == "mod" || words[1] == "get"):
		// TestTutorialBooking runs these lines, with a checkout that exists.
		tutorial := strings.ReplaceAll(readText(t, "docs/tutorial-booking.md"), "$CHECKOUT", "$PWD/fencelock")
		if !strings.Contains(tutorial, line) {
			t.Errorf("README: %q: not a line of the tutorial", line)
		}
	case words[0] == "go" && words[1] == "install":
		if _, err := os.Stat(words[2]); err != nil {
			t.Errorf("README: %q: %v", line, err)
		}
	case strings.HasPrefix(line, "export FENCELOCK_URL="): // runLine sets another one
	case strings.HasSuffix(line, " demo"):
		runLine(t, ".", dir, line+" --fast") // without its pauses for readers
	case strings.HasPrefix(line, "go run "):
		runLine(t, ".", dir, line)
	case line == "fencelock ui": // serves until a signal
		runLine(t, dir, dir, line+" --help")
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
		"GOWORK=", // as in a checkout; make sets it to off
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
