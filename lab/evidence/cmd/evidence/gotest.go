package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A result is what go test reported about one package.
type result struct {
	passed, skipped, failed int      // subtests of the first level
	lines                   []string // that the tests logged
}

// goTest runs tests of one package, with more variables in the environment, and counts their
// subtests.
func goTest(env []string, pkg, run string, args ...string) (result, error) {
	var r result
	module := "."
	for _, m := range []string{"lab/kube", "lab/minio", "lab", "cmd"} {
		if below, ok := strings.CutPrefix(pkg, "./"+m); ok {
			module, pkg = m, "."+below
			break
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-C", module, "-json", "-count=1", "-timeout=6h", "-run=" + run, pkg}, args...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			r.add(e.Action, e.Test, e.Output)
		}
	}
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("go test %s -run %s: %w\n%s", pkg, run, err, strings.Join(r.lines, ""))
	}
	return r, nil
}

func (r *result) add(action, test, output string) {
	if action == "output" {
		r.lines = append(r.lines, output)
	}
	if strings.Count(test, "/") != 1 {
		return
	}
	switch action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		r.failed++
	}
}

// count returns how many logged lines contain text.
func (r result) count(text string) (n int) {
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
