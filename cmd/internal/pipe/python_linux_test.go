package pipe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// command is the path of the command, which TestMain builds without the race detector, as users do.
var command string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fencelock-pipe")
	if err == nil {
		command = filepath.Join(dir, "fencelock")
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", command, "../../fencelock")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the command:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

const clients = "../../../clients"

// python returns Debian's Python, which has the packages that tests need, or another one.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(path, "-c", "import sys, "+strings.Join(append(modules, "json"), ", ")+"; sys.version_info >= (3, 9) or sys.exit(1)").Run() == nil {
			return path
		}
	}
	t.Skipf("there is no Python 3.9 with %v: .ci/need languages", modules)
	return ""
}

// run runs a program until it ends, and returns what it prints.
func run(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "FENCELOCK_TEST_PROGRAM="+command, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error::ResourceWarning",
		"PYTHONPATH="+filepath.Join(clients, "python"), "PATH="+filepath.Dir(command)+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, &out, &errs)
	}
	return out.Bytes()
}

// files returns the URL of a directory that is removed after the test.
func files(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-pipe")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "file://" + dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPython runs the tests of the client for Python.
func TestPython(t *testing.T) {
	t.Parallel()
	for engine, url := range urls(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			run(t, []string{"FENCELOCK_TEST_URLS=" + url}, python(t), filepath.Join(clients, "python/tests/test_fencelock.py"))
		})
	}
}

// slow reports whether to run the long tests.
func slow() bool { return os.Getenv("FENCELOCK_SLOW") != "" }

// urls returns the URLs of engines, by name.
func urls(t *testing.T) map[string]string {
	urls := map[string]string{"redis": "redis://" + redistest.StartRedis(t).Addr(), "files": files(t)}
	if slow() {
		var nodes []string
		for range 3 {
			nodes = append(nodes, redistest.StartRedis(t).Addr())
		}
		urls["redlock"] = "redlock://" + strings.Join(nodes, ",")
		urls["postgres"] = pgtest.StartPostgres(t).DSN()
		urls["postgres+rows"] = strings.Replace(urls["postgres"], "postgres:", "postgres+rows:", 1)
	}
	return urls
}

// nemesis is what nemesis.py prints.
type nemesis struct {
	Fault   string
	Runs    int
	Entered int
	Margin  []float64 // entry of the next holder minus the end of the work: least, median, greatest
	Check   []float64 // the same, minus the last check that succeeded
	Tokens  bool      // the next holder has a greater one
}

// TestPythonNemesis kills and freezes programs, children, pipes and a server. Nobody may enter
// before the holder has stopped. A frozen program stops late, but its next check fails.
func TestPythonNemesis(t *testing.T) {
	t.Parallel()
	interpreter, runs := python(t), "3"
	faults := map[string][]string{
		"redis": {"kill-child", "stop-child", "stop-pipe", "kill-program", "stop-program", "stop-both"},
		"files": {"kill-child", "kill-program", "stop-child", "stop-program"},
	}
	if slow() {
		runs = "20"
		for _, engine := range []string{"redlock", "postgres", "postgres+rows"} {
			faults[engine] = faults["redis"]
		}
	}
	test := func(engine, url, fault string, server int) {
		t.Run(engine+"/"+fault, func(t *testing.T) {
			if !slow() { // twenty programs are enough for two cores
				t.Parallel()
			}
			var n nemesis
			out := run(t, nil, interpreter, filepath.Join(clients, "python/tests/nemesis.py"), url, fault, runs, fmt.Sprint(server))
			must(t, json.Unmarshal(out, &n))
			t.Logf("%s", bytes.TrimSpace(out))
			frozenProgram := fault == "stop-program" || fault == "stop-both"
			switch {
			case !n.Tokens:
				t.Error("a token is not greater than the one before it")
			case len(n.Check) > 0 && n.Check[0] <= 0:
				t.Error("a check succeeded although the next holder had entered")
			case slow() && len(n.Margin) > 0 && n.Margin[0] <= 0 && !frozenProgram: // a busy machine freezes programs, too
				t.Error("the next holder entered before the work had stopped")
			case engine == "files" && strings.HasPrefix(fault, "stop") && n.Entered > 0:
				t.Error("somebody entered while the holder was frozen")
			}
		})
	}
	for engine, url := range urls(t) {
		for _, fault := range faults[engine] {
			test(engine, url, fault, 0)
		}
	}
	frozen := redistest.StartRedis(t)
	test("redis", "redis://"+frozen.Addr(), "stop-server", frozen.PID())
}

// TestPythonWheel: pyproject.toml builds a wheel that has the client.
func TestPythonWheel(t *testing.T) {
	t.Parallel()
	interpreter := python(t, "setuptools", "wheel", "pip")
	dir, err := os.MkdirTemp("", "fencelock-pipe")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"fencelock.py", "pyproject.toml", "README.md"} {
		b, err := os.ReadFile(filepath.Join(clients, "python", name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	run(t, []string{"PYTHONWARNINGS="}, interpreter, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", dir, dir)
	wheels, err := filepath.Glob(filepath.Join(dir, "fencelock-*-py3-none-any.whl"))
	must(t, err)
	if len(wheels) != 1 {
		t.Fatalf("wheels: %v", wheels)
	}
	out := run(t, nil, interpreter, "-c", "import zipfile, sys; print(zipfile.ZipFile(sys.argv[1]).namelist())", wheels[0])
	if !strings.Contains(string(out), "'fencelock.py'") {
		t.Errorf("the wheel has %s", out)
	}
}
