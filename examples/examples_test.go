//go:build unix

// Package examples_test runs the small examples.
package examples_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Of two processes, the first one works and the second one looks on.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fencelock-examples-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for program, says := range map[string][]string{
		"leader":  {"I lead, in term", "leads, in term"},
		"nightly": {"writing invoices under token", "skipped:"},
	} {
		t.Run(program, func(t *testing.T) {
			bin := filepath.Join(dir, program)
			if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", bin, "./"+program).CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			for _, want := range says {
				start(t, bin, want)
			}
		})
	}
}

// start runs the program and returns when it has said what is wanted. An interrupt
// ends it with the test.
func start(t *testing.T, bin, want string) {
	t.Helper()
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(bin))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		for said.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	for said.Scan() {
		if strings.Contains(said.Text(), want) {
			return
		}
		t.Log(said.Text())
	}
	t.Errorf("it ended and did not say %q", want)
}
