package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fencelock/fencelock/lab/evidence"
)

// A suite is the tests of one project.
type suite struct {
	name    string
	module  string
	version string
	engine  string            // what of fencelock it runs on
	dir     string            // the directory of the adapter, below testdata
	pkg     string            // the directory of the adapter's package in it
	from    string            // the directory of the tests in the project's module
	files   []string          // the test files
	also    []string          // other files of the module that the tests import, from its root
	design  map[string]string // tests that fail by design, and why
}

// run builds the suite's tests on the adapter and runs each test in a process of its own, so that
// one that panics does not end the others.
func (s suite) run(ctx context.Context) (evidence.Shim, error) {
	out := evidence.Shim{Suite: s.name, Version: strings.TrimPrefix(s.version, "v"), Engine: s.engine}
	dir, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return out, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := s.build(ctx, dir)
	if err != nil {
		return out, err
	}
	list, err := exec.CommandContext(ctx, binary, "-test.list=^Test").Output()
	if err != nil {
		return out, err
	}
	var failed []error
	for test := range strings.FieldsSeq(string(list)) {
		if err := flush(); err != nil {
			return out, err
		}
		text, err := exec.CommandContext(ctx, binary, "-test.run=^"+test+"$", "-test.v", "-test.timeout=2m").CombinedOutput()
		why, expected := s.design[test]
		switch {
		case err != nil && expected:
			out.Failed++
			out.Differences = append(out.Differences, evidence.Difference{Test: test, Why: why})
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %s: %w\n%s", s.name, test, err, tail(text)))
		case expected:
			failed = append(failed, fmt.Errorf("%s: %s passes, although it is listed as a difference", s.name, test))
		case strings.Contains(string(text), "--- SKIP: "+test):
			out.Skipped++
		default:
			out.Passed++
		}
	}
	return out, errors.Join(failed...)
}

// tail is the end of what a test has printed.
func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

// build compiles the adapter with the project's test files laid over it.
func (s suite) build(ctx context.Context, tmp string) (binary string, err error) {
	source, err := download(ctx, s.module+"@"+s.version)
	if err != nil {
		return "", err
	}
	adapter, err := filepath.Abs(filepath.Join("bench", "suites", "testdata", s.dir))
	if err != nil {
		return "", err
	}
	// On disk an adapter is no module, so the repository has no modules that nobody builds.
	replace := map[string]string{}
	for _, file := range []string{"go.mod", "go.sum"} {
		replace[filepath.Join(adapter, file)] = filepath.Join(adapter, file+".txt")
	}
	for _, file := range s.files {
		replace[filepath.Join(adapter, s.pkg, file)] = filepath.Join(source, s.from, file)
	}
	for _, file := range s.also {
		replace[filepath.Join(adapter, file)] = filepath.Join(source, file)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(tmp, "tests")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binary, "./"+s.pkg)
	cmd.Dir, cmd.Stderr = adapter, os.Stderr
	return binary, cmd.Run()
}

// download returns the directory of a module in the module cache.
func download(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	var m struct{ Dir, Error string }
	if bad := json.Unmarshal(out, &m); bad != nil || m.Dir == "" {
		return "", fmt.Errorf("%s: %s %w", module, m.Error, errors.Join(err, bad))
	}
	return m.Dir, nil
}
