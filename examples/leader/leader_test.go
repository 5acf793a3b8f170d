//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const envRun = "FENCELOCK_EXAMPLE_RUN"

// TestMain makes this binary the program when a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv(envRun) == "" {
		os.Exit(m.Run())
	}
	main()
}

// Of two processes, the first one works and the second one looks on.
func TestTwoProcesses(t *testing.T) {
	dir, err := os.MkdirTemp("", "fencelock-leader-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, want := range []string{"I lead, in term", "leads, in term"} {
		start(t, dir, want)
	}
}

// start runs the program and returns when it has said what is wanted. An interrupt
// ends it with the test.
func start(t *testing.T, dir, want string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRun+"=1", "TMPDIR="+dir)
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
